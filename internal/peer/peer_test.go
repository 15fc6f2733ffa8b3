package peer

import (
	"slices"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

func TestWords_InOrder(t *testing.T) {
	var p action.Process
	p.Kernel.ExeState, p.Kernel.Container, p.Kernel.TracerPID = "hidden", true, 7
	p.Claimed.Runtime = "node"
	want := []string{"program hidden", "runtime: node", "container", "traced by pid 7"}
	if got := Words(p); !slices.Equal(got, want) {
		t.Errorf("Words = %q, want %q", got, want)
	}
}

func TestRuntimeOf(t *testing.T) {
	for _, test := range []struct {
		exe          string
		argv         []string
		name, script string
	}{
		{"/usr/bin/node", []string{"node", "--no-warnings", "/opt/cli.js", "--flag"}, "node", "/opt/cli.js"},
		{"/usr/bin/python3.12", []string{"python3", "-m", "agent"}, "python3", ""},
		{"/usr/bin/python3.12", []string{"python3", "-u", "agent.py"}, "python3", "agent.py"},
		{"/bin/bash", []string{"bash", "-c", "evil"}, "bash", ""},
		{"/usr/bin/npx", []string{"npx", "thing"}, "npx", "thing"},
		{"/usr/bin/lua5.4", nil, "lua5", ""},
		{"/usr/bin/ruby", []string{"ruby"}, "ruby", ""},
		{"/usr/bin/java", []string{"java", "-jar", "x.jar"}, "java", "x.jar"},
		{"/usr/bin/codex", []string{"codex", "x"}, "", ""},
		{"/usr/bin/shfmt", []string{"shfmt", "x"}, "", ""},
		{"/usr/bin/nodemon", nil, "", ""},
	} {
		name, script := runtimeOf(test.exe, test.argv)
		if name != test.name || name != "" && script != test.script {
			t.Errorf("runtimeOf(%s, %q) = %q, %q, want %q, %q", test.exe, test.argv, name, script, test.name, test.script)
		}
	}
}
