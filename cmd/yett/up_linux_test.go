package main

import (
	"strings"
	"testing"
)

// TestUpOfABareAccount: an ordinary account with nothing in its home, and no
// --home: yett up makes and starts everything, in the background or, where the
// service was installed, by the service manager; and again after each end.
func TestUpOfABareAccount(t *testing.T) {
	m := newManaged(t)
	said := sections(m.inNamespace(`yett="$1/yett"; home="$2"; cd "$home"
say() { printf '\n=%s\n' "$1"; }
phrase() { printf 'correct horse battery staple\n'; }
say nobody;    "$yett" up --json 2>&1 || echo "exit $?"; ls -A "$home"
say first;     phrase | "$yett" up --passphrase-fd 0
say owner;     "$yett" service status --json
say where;     find "$home" -type f; ls -A "/run/user/$(id -u)/yett"
say add;       { phrase >&4; } 4> phrase; printf 'a-demo-token\n' | "$yett" add http --name demo --origin https://api.example.com --path /v1/x --no-test --passphrase-fd 5 5< phrase
say again;     "$yett" up
say stop;      "$yett" stop
say service;   "$yett" service install --yes --json
say activated; phrase | "$yett" up --passphrase-fd 0
say manager;   "$yett" service status --json
"$yett" stop > /dev/null; systemctl --user stop yett.socket
say idle;      "$yett" service status --json
say woken;     phrase | "$yett" up --passphrase-fd 0 --json
say listening; "$yett" service status --json
"$yett" stop > /dev/null; systemctl --user disable --now yett.socket 2>&1
say byhand;    phrase | "$yett" up --passphrase-fd 0 --json
say own;       "$yett" service status --json
"$yett" stop > /dev/null
`))
	for name, want := range map[string][]string{
		"nobody":    {`"proof_required"`, "exit 3"},
		"first":     {"The vault is made: " + m.home + "/.local/share/yett", "Unlocked.", "Yett is up.", "next: yett add PRESET ", `{"mcpServers":{"yett":{"command":"` + m.bin + `/yett-mcp"}}}`},
		"owner":     {`"owner":"started by hand"`},
		"where":     {m.home + "/.local/share/yett/broker.log", "broker.sock"},
		"add":       {"demo is added.", "http:demo.read", "next: let an agent ask for it, then: yett pending\n"},
		"again":     {"Yett is up already."},
		"activated": {"Unlocked.", "Yett is up."},
		"manager":   {`"owner":"service manager"`, `"running":true`},
		"idle":      {`"running":false`, `"listening":false`},
		"woken":     {`"broker":"service"`, `"state":"ready"`},
		"listening": {`"owner":"service manager"`, `"running":true`},
		"byhand":    {`"broker":"started"`},
		"own":       {`"owner":"started by hand"`, `"enabled":false`},
	} {
		for _, w := range want {
			if !strings.Contains(said[name], w) {
				t.Errorf("%s: %q is not in\n%s", name, w, said[name])
			}
		}
	}
	if lines := strings.Split(strings.TrimSpace(said["nobody"]), "\n"); len(lines) != 2 {
		t.Errorf("something was made for nobody: %q", lines)
	}
}
