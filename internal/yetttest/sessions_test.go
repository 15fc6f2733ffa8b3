package yetttest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// TestG3_SessionsShowTheGrantsOwnEnd: a grant that ends before its session is
// listed with its own end, and one for one action as that.
func TestG3_SessionsShowTheGrantsOwnEnd(t *testing.T) {
	b := Start(t, StartUpstream(t, canary).Access(), "demo", canary)
	c := b.Open()
	c.OpenSession()
	for capability, how := range map[string][]string{"http:demo.read": {"--for", "5m"}, "http:demo.write": {"--once"}} {
		c.Must(wire.MethodAccessRequest, c.Next(map[string]any{"capabilities": []string{capability}, "purpose": "x", "wait_ms": 0}), &c.Session)
		b.Approve(b.CardOf(c.Session.Pending.ApprovalID), how...)
	}
	var s wire.Session
	for _, listed := range b.Sessions() {
		if listed.SessionID == c.Session.SessionID {
			s = listed
		}
	}
	if len(s.Grants) != 2 || s.Grants[0].Capability != "http:demo.read" || s.Grants[0].Once || !s.Grants[1].Once {
		t.Fatalf("%+v", s.Grants)
	}
	if left := time.Until(s.Grants[0].Until); left > 5*time.Minute || s.ExpiresAt.Sub(s.Grants[0].Until) < 7*time.Hour {
		t.Errorf("the grant ends in %v, the session %v later", left, s.ExpiresAt.Sub(s.Grants[0].Until))
	}
	list, end := b.Must("sessions").Stdout, s.Grants[0].Until.Local().Format(time.TimeOnly)
	if !strings.Contains(list, "http:demo.read (until "+end+")") || !strings.Contains(list, "http:demo.write (once, until ") {
		t.Errorf("it is listed as\n%s", list)
	}
}

// TestA3_RevokeWithoutAProof: whoever may not read who has access can still take
// it away, from one process or from all, and learns no more than how many
// sessions ended.
func TestA3_RevokeWithoutAProof(t *testing.T) {
	b := Start(t, StartUpstream(t, canary).Access(), "demo", canary)
	one, two := b.startShim().ready(), b.startShim().ready()
	first, second := one.grant("http:demo.read"), two.grant("http:demo.read")
	third := b.Granted("http:demo.read")
	if r := b.RunPlain("sessions"); !strings.Contains(r.Stderr, "yett revoke --home "+b.Home+" --pid N") {
		t.Errorf("the list does not say how they end: %s", r.Stderr)
	}
	pid := strconv.Itoa(one.cmd.Process.Pid)
	if r := b.RunPlain("revoke", "--pid", pid); r.Code != 0 || r.Stdout != "1 session ended.\n" {
		t.Fatalf("%+v", r)
	}
	b.ended(first, session.Revoked)
	if op := third.MustAct("http:demo.read", readX); op.State != "completed" {
		t.Errorf("another process's session ended too: %+v", op)
	}
	if r := b.RunPlain("revoke", "--pid", pid, "--json"); r.Code != 1 || !strings.Contains(r.Stderr, "yett revoke --home "+b.Home+" --all") {
		t.Errorf("again: %+v", r)
	}
	if r := b.RunPlain("revoke", "--all", "--json"); r.Code != 0 || r.Stdout != `{"sessions":2,"state":"ended"}`+"\n" {
		t.Fatalf("%+v", r)
	}
	b.ended(second, session.Revoked)
	b.ended(third.Session.SessionID, session.Revoked)
	if r := third.Act("http:demo.read", readX); r.Code() != wire.CodeSessionEnded {
		t.Errorf("it goes on: %s", r.Code())
	}
	revoked := map[string]bool{}
	for _, row := range b.Activity() {
		if row.Kind == "session.revoked" {
			revoked[string(row.Request)] = true
		}
	}
	if len(revoked) != 3 {
		t.Errorf("recorded: %v", revoked)
	}
}
