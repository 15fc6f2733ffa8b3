package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/yetttest"
)

const sshPart = `
[credential.deploy-key]
kind = "ssh-key"
[host.web1]
address = "127.0.0.1:22"
user = "deploy"
key = "deploy-key"
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEtc8sCYNw9pYzTPmKLmYF4uxBmMbMLRQQ1nYTg5vKxP"]
[capability."ssh:web1.status"]
host = "web1"
commands = ["uptime"]
[credential.spare]
kind = "bearer"
origin = "https://spare.invalid"
`

type matrixCell struct {
	Process, Credential, Capability, Operation, Access string
	Ends                                               []string
}

func matrixOf(t *testing.T, b *yetttest.Broker) (cells []matrixCell) {
	t.Helper()
	r := b.Must("review", "--matrix", "--json")
	var m struct{ Cells []matrixCell }
	r.JSON(t, &m)
	return m.Cells
}

func cellOf(t *testing.T, cells []matrixCell, process, credential, capability string) matrixCell {
	t.Helper()
	i := slices.IndexFunc(cells, func(c matrixCell) bool {
		return strings.Contains(c.Process, process) && c.Credential == credential && c.Capability == capability
	})
	if i < 0 {
		t.Fatalf("no cell for %s, %s, %s in %+v", process, credential, capability, cells)
	}
	return cells[i]
}

// TestA6_MatrixIsWhole: every live session, the command line, an unapproved
// process and another account meet every credential that is stored, with every
// capability of it, what is possible now and what ends it.
func TestA6_MatrixIsWhole(t *testing.T) {
	up := yetttest.StartUpstream(t, "canary-of-the-review")
	b := yetttest.Start(t, up.Access()+sshPart, "demo", "canary-of-the-review")
	granted, bare := b.Granted("http:demo.read", "http:demo.each"), b.Open()
	bare.OpenSession()
	cells := matrixOf(t, b)

	processes := []string{"command line", "of this account without a session", "of another account"}
	for _, s := range b.Sessions() {
		processes = append(processes, s.SessionID)
	}
	if len(processes) != 5 {
		t.Fatalf("%d sessions", len(processes)-3)
	}
	for _, p := range processes {
		for credential, capabilities := range map[string][]string{"demo": {"http:demo.read", "http:demo.write", "http:demo.each"},
			"deploy-key": {"ssh:web1.status"}, "spare": {""}} {
			if p == "command line" { // one row for a credential: it uses no capability
				capabilities = []string{""}
			}
			for _, capability := range capabilities {
				if c := cellOf(t, cells, p, credential, capability); c.Operation == "" || c.Access == "" || len(c.Ends) == 0 {
					t.Errorf("unsaid: %+v", c)
				}
			}
		}
	}
	for _, c := range []struct{ process, capability, access, operation string }{
		{granted.Session.SessionID, "http:demo.read", "granted, until", "GET, HEAD /v1/** at http://127.0.0.1"},
		{granted.Session.SessionID, "http:demo.each", "each action is asked for", "/each/**"},
		{granted.Session.SessionID, "http:demo.write", "none; it may ask", "POST"},
		{bare.Session.SessionID, "http:demo.read", "none; it may ask", "GET"},
		{"without a session", "http:demo.read", "none: it needs a session", "GET"},
		{"another account", "http:demo.read", "mode 0700", "GET"},
		{"command line", "", "with your proof", "no command uses or shows it"},
	} {
		if got := cellOf(t, cells, c.process, "demo", c.capability); !strings.Contains(got.Access, c.access) || !strings.Contains(got.Operation, c.operation) {
			t.Errorf("%+v", got)
		}
	}
	if c := cellOf(t, cells, granted.Session.SessionID, "deploy-key", "ssh:web1.status"); !strings.Contains(c.Operation, "run uptime on deploy@127.0.0.1:22") ||
		!strings.Contains(c.Access, "no value yet") {
		t.Errorf("%+v", c)
	}

	b.RunPlain("lock", "--pause")
	b.Unlock()
	b.Apply(strings.Replace(up.Access(), `"/v1/**"`, `"/v2/**"`, 1) + sshPart)
	if c := cellOf(t, matrixOf(t, b), granted.Session.SessionID, "demo", "http:demo.read"); !strings.Contains(c.Operation, "/v2/**") || !strings.Contains(c.Access, "none; it may ask") {
		t.Errorf("after another access file: %+v", c)
	}
	b.RunPlain("revoke", granted.Session.SessionID)
	for _, c := range matrixOf(t, b) {
		if strings.Contains(c.Process, granted.Session.SessionID) {
			t.Errorf("a revoked session is in the matrix: %+v", c)
		}
	}
	b.RunPlain("lock")
	if r := b.Run("review", "--matrix"); r.Code != 0 || !strings.Contains(r.Stdout, "locked") || strings.Contains(r.Stdout, "granted") {
		t.Errorf("locked: exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}
