package yetttest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs copies yett, yett-mcp and an agent into a directory of the test's
// own, where it may replace them as an update does.
func programs(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, from := range map[string]string{"yett": Bin("yett"), "yett-mcp": Bin("yett-mcp"), "agent": "/proc/self/exe"} {
		must(t, copyFile(from, filepath.Join(dir, name), 0o755))
	}
	return dir
}

// replaceProgram replaces a program by one with other bytes that does the same.
func replaceProgram(t testing.TB, path string) {
	t.Helper()
	must(t, copyFile(path, path+".new", 0o755))
	f, err := os.OpenFile(path+".new", os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString("a newer release")
	must(t, err)
	must(t, f.Close())
	must(t, os.Rename(path+".new", path))
}

func digest(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// agentIn starts the agent of a directory, which starts the yett-mcp there.
func (b *Broker) agentIn(dir string) *host {
	b.T.Helper()
	c := exec.Command(filepath.Join(dir, "agent"), filepath.Join(dir, "yett-mcp"), b.Home, "pipe")
	c.Env = []string{roleVariable + "=agent", "GORACE=" + os.Getenv("GORACE")}
	return b.host(c, nil).start().ready()
}

// TestB9_UpdateUnderLiveSessions: agent, shim and broker are replaced on disk
// under eight sessions. They go on; the record keeps the digests of what runs;
// what starts now is the new program; and the status says that the broker is
// not it.
func TestB9_UpdateUnderLiveSessions(t *testing.T) {
	up := StartUpstream(t, canary)
	b := New(t)
	dir := programs(t)
	b.programsIn(dir)
	b.Serve()
	b.Unlock()
	b.Apply(up.Access())
	b.SetSecret("demo", canary)
	old := map[string]string{}
	for _, name := range []string{"yett-mcp", "agent"} {
		old[name] = digest(t, filepath.Join(dir, name))
	}
	agents := make([]*host, 8)
	ids := map[string]bool{}
	for i := range agents {
		agents[i] = b.agentIn(dir)
		ids[agents[i].grant("http:demo.read")] = true
	}
	if st := b.status(); st.UpdateWaiting || st.Sessions != len(agents) {
		t.Errorf("before the update: %+v", st)
	}

	for _, name := range []string{"yett", "yett-mcp", "agent"} {
		replaceProgram(t, filepath.Join(dir, name))
	}
	for i, h := range agents {
		h.call("http_request", fmt.Sprintf(`{"capability":"http:demo.read","method":"GET","path":"/v1/%d"}`, i)).wants(t, "completed: HTTP 200")
	}
	st := b.status()
	if !st.UpdateWaiting || st.Sessions != len(agents) {
		t.Errorf("after the update: %+v", st)
	}
	if text := b.RunPlain("status").Stdout; !strings.Contains(text, "an update of yett is installed") {
		t.Errorf("yett status says nothing of the update:\n%s", text)
	}
	b.Env = nil
	if r := b.runIn(dir, "status"); r.Code != 0 || !strings.Contains(r.Stdout, "an update of yett is installed") {
		t.Errorf("the new yett says: exit %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	acted, shims := 0, map[string]bool{}
	for _, row := range b.Activity() {
		if ids[row.SessionID] && strings.Contains(string(row.Verified), old["yett-mcp"]) {
			shims[row.SessionID] = true
		}
		if !ids[row.SessionID] || row.OperationID == "" {
			continue
		}
		acted++
		if !strings.Contains(string(row.Verified), old["agent"]) {
			t.Errorf("row %d (%s) lacks the digest of the agent that runs:\n%.1500s", row.N, row.Kind, row.Verified)
		}
	}
	if acted != 2*len(agents) || len(shims) != len(agents) {
		t.Errorf("%d rows of actions, %d sessions with the digest of the shim that runs", acted, len(shims))
	}

	h := b.agentIn(dir)
	id := h.grant("http:demo.read")
	for _, s := range b.Sessions() {
		if s.SessionID == id {
			said := fmt.Sprintf("%+v", s.Caller.Agent)
			if sum := digest(t, filepath.Join(dir, "agent")); !strings.Contains(said, sum) {
				t.Errorf("the agent that started after the update is recorded as %s", said)
			}
		}
	}
	b.Restart()
	if st := b.status(); st.UpdateWaiting || st.Sessions != 0 {
		t.Errorf("after the restart: %+v", st)
	}
	// A shim from before the update is not the installed one for a new channel.
	agents[0].call("list_access", "{}").refused(t, "attribution_failed", "Restart the agent after an update")
	h.call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/after"}`).wants(t, "This is a new session", "capability_not_granted")
}
