package yetttest

import (
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// TestC12_OldAndNew: every pair of an old and a new shim and broker. What does
// not fit is refused in the first exchange, names the side to update, and asks
// nobody for anything.
func TestC12_OldAndNew(t *testing.T) {
	for _, c := range []struct {
		shim, broker string
		code, step   string
		notStep      string
	}{
		{"old", "old", "locked", "yett unlock", "pdate"},
		{"new", "new", "locked", "yett unlock", "pdate"},
		{"old", "new", "protocol_unsupported", "Update yett-mcp", "restart yett:"},
		{"new", "old", "protocol_unsupported", "Update and restart yett:", "yett-mcp, which"},
	} {
		t.Run(c.shim+" shim, "+c.broker+" broker", func(t *testing.T) {
			dir := releasePrograms(c.broker, c.shim, "")
			b := New(t)
			b.programsIn(dir)
			b.Serve()
			h := b.shimIn(dir)
			for _, tool := range []string{"list_access", "request_access", "http_request"} {
				arguments := map[string]string{"list_access": "{}", "request_access": `{"capabilities":["http:demo.read"]}`,
					"http_request": `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`}[tool]
				said := h.call(tool, arguments)
				said.refused(t, c.code, c.step, "Tell the person", "Nothing was executed")
				if strings.Contains(said.text, c.notStep) {
					t.Errorf("the wrong side is named:\n%s", said.text)
				}
			}
			r := b.runIn(dir, "status", "--json")
			var st wire.Status
			r.JSON(t, &st)
			if r.Code != 0 || st.State != "locked" || st.Pending != 0 || st.Sessions != 0 {
				t.Errorf("status: exit %d %+v", r.Code, st)
			}
		})
	}
}

// TestC12_StatusAndStopReachEveryRelease, and nothing else does.
func TestC12_StatusAndStopReachEveryRelease(t *testing.T) {
	for _, c := range []struct{ cli, broker, step string }{
		{"old", "new", "run the one that the broker was started from"},
		{"new", "old", "Update and restart yett"},
	} {
		t.Run(c.cli+" command, "+c.broker+" broker", func(t *testing.T) {
			b := New(t)
			b.programsIn(releasePrograms(c.broker, c.broker, ""))
			b.Serve()
			person := releasePrograms(c.cli, c.cli, "")
			var st wire.Status
			r := b.runIn(person, "status", "--json")
			r.JSON(t, &st)
			if r.Code != 0 || st.State != "locked" || st.BrokerVersion == "" || st.Home != b.Home || st.Profile != "desktop" {
				t.Errorf("status --json: exit %d %+v %s", r.Code, st, r.Stderr)
			}
			if r := b.runIn(person, "status"); r.Code != 0 || !strings.Contains(r.Stdout, "locked: broker") || !strings.Contains(r.Stdout, c.step) {
				t.Errorf("status: exit %d %s%s", r.Code, r.Stdout, r.Stderr)
			}
			for _, command := range []string{"lock", "sessions", "activity"} {
				r := b.runIn(person, command)
				if r.Code != 3 || !strings.Contains(r.Stderr, c.step) {
					t.Errorf("%s: exit %d %s%s", command, r.Code, r.Stdout, r.Stderr)
				}
			}
			if r := b.runIn(person, "stop"); r.Code != 0 {
				t.Errorf("stop: exit %d %s", r.Code, r.Stderr)
			}
			exited := make(chan struct{})
			go func() { b.cmd.Wait(); close(exited) }()
			select {
			case <-exited:
			case <-time.After(Patience):
				t.Fatal("the broker did not stop")
			}
			if code := b.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("the broker exited with %d", code)
			}
			b.cmd = nil
			if r := b.runIn(person, "status"); r.Code != 4 {
				t.Errorf("status afterwards: exit %d %s", r.Code, r.Stdout)
			}
		})
	}
}
