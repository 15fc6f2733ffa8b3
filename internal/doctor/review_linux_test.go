package doctor_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// page is the output of yett review --json: the text of each topic.
func page(t *testing.T, b *yetttest.Broker, proof bool) map[string]string {
	t.Helper()
	run := b.RunPlain
	if proof {
		run = b.Run
	}
	r := run("review", "--json")
	if r.Code != 0 {
		t.Fatalf("yett review: exit %d\n%s", r.Code, r.Stderr)
	}
	var out struct {
		Proven bool
		Topics []struct {
			Topic string
			Facts []struct{ Fact, From string }
		}
	}
	r.JSON(t, &out)
	if out.Proven != proof && !strings.Contains(r.Stdout, "Yett is locked") {
		t.Errorf("proven %v with a proof %v", out.Proven, proof)
	}
	p := map[string]string{}
	for _, topic := range out.Topics {
		for _, f := range topic.Facts {
			if f.Fact == "" || f.From == "" {
				t.Errorf("%s: a fact without text or source", topic.Topic)
			}
			p[topic.Topic] += f.Fact + "\n"
		}
	}
	if len(p) != 8 {
		t.Fatalf("%d topics: %v", len(p), p)
	}
	return p
}

// shows wants a text in a topic of the page, which was not there before.
func shows(t *testing.T, before, after map[string]string, topic, text string) {
	t.Helper()
	if strings.Contains(before[topic], text) {
		t.Errorf("%s says already %q", topic, text)
	}
	if !strings.Contains(after[topic], text) {
		t.Errorf("%s does not say %q:\n%s", topic, text, after[topic])
	}
}

// TestI5_EveryFactChangesThePage: what changes in the system changes on the
// page, in its topic.
func TestI5_EveryFactChangesThePage(t *testing.T) {
	dir := ownPrograms(t)
	up := yetttest.StartUpstream(t, "canary-of-the-review")
	b := yetttest.Start(t, up.Access(), "demo", "canary-of-the-review")
	now := page(t, b, true)
	next := func() (before, after map[string]string) {
		before, now = now, page(t, b, true)
		return before, now
	}

	c := b.Granted("http:demo.read")
	id := c.Session.SessionID
	before, after := next()
	shows(t, before, after, "Unit of authorization", "Each covers one process (1)")
	shows(t, before, after, "Caller evidence", fmt.Sprintf("%s: process %d, ", id, os.Getpid()))
	shows(t, before, after, "Session begin and end", id+" is active: began ")
	shows(t, before, after, "Session begin and end", "may use http:demo.read")
	shows(t, before, after, "Audit record", "1 decision,")

	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
	before, after = next()
	shows(t, before, after, "After a crash", "1 intent,")

	b.RunPlain("revoke", id)
	before, after = next()
	shows(t, before, after, "Session begin and end", "revoked (1)")
	if strings.Contains(after["Caller evidence"], id) {
		t.Error("a revoked session is still listed as live")
	}

	b.Apply(strings.Replace(up.Access(), `paths = ["/v1/**"]`, "paths = [\"/v1/**\"]\nconfirm = \"each\"", 1))
	before, after = next()
	shows(t, before, after, "Unit of authorization", "for each action: 2")

	replaceProgram(t, filepath.Join(dir, "yett"))
	before, after = next()
	shows(t, before, after, "After an update", "takes effect at the next start")

	b.Stop()
	b.ServeArgs = []string{"--lock-after=17m", "--lock-on-suspend=false"}
	b.Serve()
	b.Unlock()
	before, after = next()
	shows(t, before, after, "Session begin and end", "after 17m without use, and not before the machine sleeps")
	if before["Endpoint ownership"] == after["Endpoint ownership"] || before["After a crash"] == after["After a crash"] {
		t.Error("another process listens, and the page is the same")
	}

	b.RunPlain("lock")
	before, after = next()
	shows(t, before, after, "Unit of authorization", "Yett is locked")
	shows(t, before, after, "Endpoint ownership", "locked")

	other := yetttest.New(t)
	other.Serve()
	shows(t, after, page(t, other, true), "Endpoint ownership", "home "+other.Home)
	if got := strings.TrimSpace(after["Other software of this account"]); got != broker.Limits {
		t.Errorf("the sentence on other software: %q", got)
	}
}

// TestI5_CrashAndChange: what a crash left, and what somebody did to the
// ledger, stand on the page.
func TestI5_CrashAndChange(t *testing.T) {
	arrived, held := make(chan bool, 1), make(chan bool)
	up := yetttest.StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-held
	})
	t.Cleanup(func() { close(held) })
	b := yetttest.Start(t, up.Access(), "demo", "canary-of-the-review")
	c := b.Granted("http:demo.write")
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": map[string]any{"method": "POST", "path": "/v1/x"}}), nil)
	<-arrived
	before := page(t, b, true)
	b.Restart()
	after := page(t, b, true)
	shows(t, before, after, "After a crash", "1 settled after a crash")

	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.Home, "ledger.db")+"?mode=rw&_pragma=busy_timeout(10000)")
	must(t, err)
	_, err = db.Exec("UPDATE operations SET unsafe=0")
	must(t, errors.Join(err, db.Close()))
	c = b.Granted("http:demo.read") // the broker notices before it acts
	if r := c.Act("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); r.Code() != wire.CodeQuarantined {
		t.Fatalf("%q", r.Code())
	}
	changed := page(t, b, true)
	shows(t, after, changed, "After a crash", "was changed by another program")
}

// TestI5_UpdateUnderALiveSession: the page counts the sessions whose yett-mcp
// was replaced since.
func TestI5_UpdateUnderALiveSession(t *testing.T) {
	dir := ownPrograms(t)
	b := yetttest.Start(t, accessFile)
	c := exec.Command(yetttest.Bin("yett-mcp"), "--home", b.Home)
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() { in.Close(); c.Wait() })
	answers := json.NewDecoder(out)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_access","arguments":{}}}`,
	} {
		fmt.Fprintln(in, line)
		var answer struct{ Error any }
		must(t, answers.Decode(&answer))
		if answer.Error != nil {
			t.Fatalf("%v", answer.Error)
		}
		fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`) // a second one says nothing
	}
	before := page(t, b, true)
	if !strings.Contains(before["After an update"], "Live sessions by the yett-mcp that lies at") {
		t.Fatalf("%s", before["After an update"])
	}
	replaceProgram(t, filepath.Join(dir, "yett-mcp"))
	shows(t, before, page(t, b, true), "After an update", "by one that was replaced since: 1")
}

// TestI5_ReviewWithoutProof: counts, and nothing of others.
func TestI5_ReviewWithoutProof(t *testing.T) {
	up := yetttest.StartUpstream(t, "canary-of-the-review")
	b := yetttest.Start(t, up.Access(), "demo", "canary-of-the-review")
	c := b.Granted("http:demo.read")
	for _, args := range [][]string{{"review"}, {"review", "--json"}, {"review", "--matrix"}, {"review", "--matrix", "--json"}} {
		r := b.RunPlain(args...)
		if r.Code != 0 || strings.Contains(r.Stdout+r.Stderr, c.Session.SessionID) || strings.Contains(r.Stdout, `"demo"`) || strings.Contains(r.Stdout, "| demo |") {
			t.Errorf("%v without a proof: exit %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
		}
		if !strings.Contains(r.Stdout, "1 session ") && !strings.Contains(r.Stdout, "1 live session,") {
			t.Errorf("%v does not count the session:\n%s", args, r.Stdout)
		}
	}
	if r := b.Run("review"); r.Code != 0 || strings.Count(r.Stdout, "\n") > 66 || !strings.Contains(r.Stdout, "## Audit record") {
		t.Errorf("not one page of Markdown: exit %d, %d lines\n%s", r.Code, strings.Count(r.Stdout, "\n"), r.Stdout)
	}
	b.Kill()
	if r := b.Run("review"); r.Code != 4 || r.Stdout != "" {
		t.Errorf("without a broker: exit %d, %q", r.Code, r.Stdout)
	}
}
