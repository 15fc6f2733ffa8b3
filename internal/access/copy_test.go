package access

import (
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

const copyFile = `
[credential.key]
kind = "ssh-key"

[host.web1]
address = "web1.example"
user = "deploy"
key = "key"
env = ["LANG"]
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINsPSYGVCxI0+n4GzsP0mWf6nh359vYopHS9tKRpG6LK"]

[capability."ssh:web1.run"]
host = "web1"
commands = ["uptime"]

[capability."ssh:web1.terminal"]
host = "web1"
commands = ["uptime"]
pty = true

[capability."ssh-copy:web1.logs"]
host = "web1"
direction = "down"
remote = ["/var/log/app/**", "/var/log/*/current"]
local = ["/home/ada/work", "/home/ada/work/logs"]

[capability."ssh-copy:web1.both"]
host = "web1"
direction = "both"
remote = ["/srv/app/release.tar"]
local = ["/home/ada/work"]
max_size = "2GiB"
overwrite = true
`

func TestDecideCopies(t *testing.T) {
	p := mustParse(t, copyFile)
	for _, c := range []struct {
		capability, direction, local, remote string
		overwrite, want                      bool
	}{
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/app/today", false, true},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/a/b/x", "/var/log/app/a/b", false, true},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/web/current", false, true},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/app", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/application/x", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/a/b/current", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/etc/shadow", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/x", "/var/log/app/today", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/working/x", "/var/log/app/today", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work", "/var/log/app/today", false, false},
		{"ssh-copy:web1.logs", action.Up, "/home/ada/work/x", "/var/log/app/today", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/app/today", true, false},
		{"ssh-copy:web1.both", action.Up, "/home/ada/work/x", "/srv/app/release.tar", true, true},
		{"ssh-copy:web1.both", action.Down, "/home/ada/work/x", "/srv/app/release.tar", false, true},
		// not made by NewCopy
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/app/../../../etc/shadow", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/../.ssh/id", "/var/log/app/today", false, false},
		{"ssh-copy:web1.logs", action.Down, "/home/ada/work/x", "/var/log/app/", false, false},
	} {
		r := action.Request{Capability: c.capability, Copy: &action.Copy{Direction: c.direction, Local: c.local, Remote: c.remote, Overwrite: c.overwrite}}
		if d := p.Decide(all, r); d.Allowed != c.want {
			t.Errorf("%+v: %+v", c, d)
		}
	}
	logs, _ := p.Capability("ssh-copy:web1.logs")
	if got := logs.LocalDirectory("/home/ada/work/logs/x"); got != "/home/ada/work/logs" {
		t.Errorf("the directory is %q", got)
	}
	if logs.MaxSizeText() != "64MiB" {
		t.Errorf("the largest is %s", logs.MaxSizeText())
	}
	ssh := action.Request{Capability: "ssh-copy:web1.logs", SSH: &action.SSH{Command: "uptime"}}
	if d := p.Decide(all, ssh); d.Allowed {
		t.Error("a command by a capability to copy")
	}
}

func TestDecideTerminalsAndVariables(t *testing.T) {
	p := mustParse(t, copyFile)
	for _, c := range []struct {
		capability string
		action     action.SSH
		want       bool
	}{
		{"ssh:web1.run", action.SSH{Command: "uptime"}, true},
		{"ssh:web1.run", action.SSH{Command: "uptime", PTY: true}, false},
		{"ssh:web1.terminal", action.SSH{Command: "uptime", PTY: true}, true},
		{"ssh:web1.run", action.SSH{Command: "uptime", Env: []action.Variable{{Name: "LANG", Value: "C"}}}, true},
		{"ssh:web1.run", action.SSH{Command: "uptime", Env: []action.Variable{{Name: "LANG", Value: "C"}, {Name: "LC_ALL", Value: "C"}}}, false},
		{"ssh:web1.run", action.SSH{Command: "uptime", Env: []action.Variable{{Name: "lang", Value: "C"}}}, false},
	} {
		if d := p.Decide(all, action.Request{Capability: c.capability, SSH: &c.action}); d.Allowed != c.want {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}

func TestCopyTablesAreRead(t *testing.T) {
	for name, c := range map[string][3]string{ // what stands there, what is put for it, what is said
		"no direction":           {"direction = \"down\"\n", "", "direction is missing"},
		"another direction":      {`"down"`, `"sideways"`, "must be"},
		"a relative remote":      {`"/var/log/app/**"`, `"var/log/**"`, "not an absolute path"},
		"dots in remote":         {`"/var/log/app/**"`, `"/var/../**"`, "dot segments"},
		"a wildcard in a word":   {`"/var/log/app/**"`, `"/var/log/*.log"`, "whole segment"},
		"** in the middle":       {`"/var/log/app/**"`, `"/var/**/x"`, "last segment"},
		"everything":             {`"/var/log/app/**"`, `"/**"`, `needs confirm = "each"`},
		"everything of one":      {`"/var/log/app/**"`, `"/*"`, `needs confirm = "each"`},
		"a backslash":            {`"/var/log/app/**"`, `"/var\\log"`, "backslash"},
		"remote that is a root":  {`"/var/log/app/**"`, `"/"`, "directory"},
		"all of this machine":    {`"/home/ada/work",`, `"/",`, "below /"},
		"local with a slash":     {`"/home/ada/work",`, `"/home/",`, "below /"},
		"local with dots":        {`"/home/ada/work",`, `"/home/../etc",`, "dot segments"},
		"local with a wildcard":  {`"/home/ada/work",`, `"/home/*",`, "'*'"},
		"a relative local":       {`"/home/ada/work",`, `"work",`, "absolute"},
		"no local":               {`["/home/ada/work", "/home/ada/work/logs"]`, `[]`, "must not be empty"},
		"a size without a unit":  {`"2GiB"`, `"2"`, "B, KiB, MiB, GiB"},
		"a size beyond all":      {`"2GiB"`, `"17GiB"`, "more than 16GiB"},
		"a size that overflows":  {`"2GiB"`, `"9999999999GiB"`, "more than 16GiB"},
		"a size of nothing":      {`"2GiB"`, `"0MiB"`, "B, KiB, MiB, GiB"},
		"commands in a copy":     {"overwrite = true\n", "overwrite = true\ncommands = [\"x\"]\n", "unknown key"},
		"a host that is not":     {"host = \"web1\"\ndirection = \"down\"", "host = \"web2\"\ndirection = \"down\"", "no [host.…]"},
		"pty that is no boolean": {"pty = true", "pty = \"yes\"", "true or false"},
	} {
		if strings.Count(copyFile, c[0]) != 1 {
			t.Fatalf("%s: %q stands %d times", name, c[0], strings.Count(copyFile, c[0]))
		}
		if _, err := Parse([]byte(strings.Replace(copyFile, c[0], c[1], 1))); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: %v, want %q", name, err, c[2])
		}
	}
}

func TestDiffShowsCopies(t *testing.T) {
	p := mustParse(t, copyFile)
	wider := mustParse(t, strings.Replace(strings.Replace(copyFile, `"/home/ada/work/logs"]`, `"/home/ada"]`, 1), "pty = true\n", "", 1))
	d := wider.Diff(p)
	for _, part := range []string{`+ local: "/home/ada"`, `- local: "/home/ada/work/logs"`, "- terminal: "} {
		if !strings.Contains(d, part) {
			t.Errorf("the difference lacks %q:\n%s", part, d)
		}
	}
}
