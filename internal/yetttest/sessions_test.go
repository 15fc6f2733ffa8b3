package yetttest

import (
	"strings"
	"testing"
	"time"

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
