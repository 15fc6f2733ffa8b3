package console_test

import (
	"testing"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

const canary = "console-canary-7f3a91c2"

// TestTheWholeWayThroughTheConsole: an agent asks, its card stands on the page,
// a person allows it by the passphrase, and the action is done; all of it is in
// the ledger, with what was known of the browser.
func TestTheWholeWayThroughTheConsole(t *testing.T) {
	t.Parallel()
	up := yetttest.StartUpstream(t, canary)
	s := start(t, up.Access(), "demo", canary)
	page := s.openProven()
	agent := s.Open()
	agent.OpenSession("http:demo.read")
	page.wait(`document.querySelector('.card')`)
	if got := agent.Session.Pending.ConsoleURL; got == nil || *got != s.url("#waiting/"+agent.Session.Pending.ApprovalID) {
		t.Errorf("the caller is pointed at %v", got)
	}
	page.approve()
	agent.Must(wire.MethodSessionWait, agent.Next(map[string]any{"wait_ms": 30_000}), &agent.Session)
	if agent.Session.State != "active" || len(agent.Session.Capabilities) != 1 {
		t.Fatalf("not granted: %+v", agent.Session)
	}
	if op := agent.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); op.State != "completed" {
		t.Fatalf("%+v", op)
	}
	page.wait(`document.querySelector('.settled').innerText.includes('allowed once')`)
	for _, r := range s.Activity() {
		if r.Kind == "decision" {
			t.Logf("%s\n%s", r.Verified, r.Claimed)
		}
	}
}
