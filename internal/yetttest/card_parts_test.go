package yetttest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// helloAs connects as a native client that says of itself what it likes.
func (b *Broker) helloAs(program string, labels map[string]string) *Channel {
	b.T.Helper()
	c := b.Dial()
	c.Must(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": program, "version": program, "role": "native", "labels": labels}, &c.Hello)
	return c
}

// TestD4_LiesChangeOnlyTheClaims: a caller that calls itself a well-known host,
// with a pid and a program of its own invention, changes nothing else.
func TestD4_LiesChangeOnlyTheClaims(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary)
	card := func(program string, labels map[string]string) map[string]json.RawMessage {
		c := b.helloAs(program, labels)
		c.OpenSession("http:demo.read")
		var parts map[string]json.RawMessage
		must(t, json.Unmarshal(b.CardOf(c.Session.Pending.ApprovalID).Card, &parts))
		parts["verified"] = bytes.ReplaceAll(parts["verified"], []byte(c.Hello.ChannelID), []byte("channel"))
		c.conn.Close()
		b.eventually(func() bool { return len(b.Pending()) == 0 })
		return parts
	}
	honest := card("test", map[string]string{})
	lies := card("claude-code", map[string]string{"pid": "1", "exe_path": "/usr/bin/claude", "unit": "operation", "words": "", "guard": "none", "stdio": "socket", "verified": "true"})
	for _, part := range []string{"verified", "request", "format", "broker_instance"} {
		if !bytes.Equal(honest[part], lies[part]) {
			t.Errorf("%s changes with a claim:\n%s\n%s", part, honest[part], lies[part])
		}
	}
	var a, z approval.Granting
	json.Unmarshal(honest["granting"], &a)
	json.Unmarshal(lies["granting"], &z)
	if a.Unit != z.Unit || len(a.Capabilities) != len(z.Capabilities) || a.Capabilities[0].Target != z.Capabilities[0].Target {
		t.Errorf("the grant changes with a claim: %+v, %+v", a, z)
	}
	if !bytes.Contains(lies["claimed"], []byte("claude-code")) || bytes.Contains(honest["claimed"], []byte("claude-code")) {
		t.Errorf("the claims are not shown: %s", lies["claimed"])
	}
}

// TestG3_EveryGrantHasAnEndThatThePersonSaw: card, decision and session.
func TestG3_EveryGrantHasAnEndThatThePersonSaw(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary)
	for _, how := range [][]string{{"--once"}, {"--for", "1h"}} {
		c := b.Open()
		c.OpenSession("http:demo.read")
		card := b.CardOf(c.Session.Pending.ApprovalID)
		var shown approval.Card
		must(t, json.Unmarshal(card.Card, &shown))
		if left := time.Until(shown.Granting.LongestEnd); left < 7*time.Hour || left > 8*time.Hour || !shown.Granting.LongestEnd.Equal(c.Session.ExpiresAt) {
			t.Errorf("the card ends at %v, the session at %v", shown.Granting.LongestEnd, c.Session.ExpiresAt)
		}
		b.Approve(card, how...)
		c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), &c.Session)
		var granted struct {
			Until      *time.Time
			LongestEnd time.Time `json:"longest_end"`
		}
		for _, r := range b.Activity() {
			if r.Kind == "decision" && strings.Contains(string(r.Request), card.ApprovalID) {
				must(t, json.Unmarshal(r.Granted, &granted))
			}
		}
		if !granted.LongestEnd.Equal(shown.Granting.LongestEnd) {
			t.Errorf("the row says %v", granted.LongestEnd)
		}
		if len(how) == 2 && (granted.Until == nil || granted.Until.Sub(c.Session.ExpiresAt).Abs() > time.Second || time.Until(c.Session.ExpiresAt) > time.Hour) {
			t.Errorf("granted until %v, and the session ends at %v", granted.Until, c.Session.ExpiresAt)
		}
	}
}

// TestH7_RowsKeepTheirPartsApart: what a caller says stands in the claimed part
// of a row, what was granted and what was asked in theirs.
func TestH7_RowsKeepTheirPartsApart(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.helloAs("SAID", map[string]string{"SAID": "SAID"})
	c.Must(wire.MethodSessionOpen, map[string]any{"nonce": c.Hello.Nonce, "capabilities": []string{"http:demo.read"}, "purpose": "SAID"}, &c.Session)
	b.Approve(b.WaitCard(), "--for", "1h")
	c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), nil)
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/ASKED"})
	c.MustAct("http:demo.write", map[string]any{"method": "POST", "path": "/v1/ASKED"})
	c.Must(wire.MethodSessionClose, c.Next(nil), nil)
	claimed, asked := 0, 0
	for _, r := range b.Activity() {
		if r.SessionID != c.Session.SessionID {
			continue
		}
		if bytes.Contains(r.Claimed, []byte("SAID")) {
			claimed++
		}
		if bytes.Contains(r.Request, []byte("ASKED")) {
			asked++
		}
		if r.Kind == "decision" { // it holds the whole card, as the person saw it
			r.Request = nil
		}
		for name, part := range map[string]json.RawMessage{"verified": r.Verified, "granted": r.Granted, "request": r.Request, "outcome": r.Outcome} {
			if bytes.Contains(part, []byte("SAID")) || name != "request" && bytes.Contains(part, []byte("ASKED")) {
				t.Errorf("row %d %s: the %s part has what it should not: %s", r.N, r.Kind, name, part)
			}
		}
		if len(r.Verified) == 0 || string(r.Verified) == "null" {
			t.Errorf("row %d %s has no evidence", r.N, r.Kind)
		}
	}
	if claimed < 3 || asked < 2 {
		t.Errorf("%d rows with claims, %d with requests", claimed, asked)
	}
}

// TestACardOfOneActionRepeatsThePurpose: where a person decides about an action
// stands what the agent said it wants the capability for, as a claim: what it
// said last for this one, or else what it said of the whole session.
func TestACardOfOneActionRepeatsThePurpose(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Open()
	c.Must(wire.MethodSessionOpen, map[string]any{"nonce": c.Hello.Nonce, "capabilities": []string{"http:demo.each"}, "purpose": "tidy up"}, &c.Session)
	b.Approve(b.WaitCard(), "--for", "1h")
	wants := func(path, purpose string) {
		t.Helper()
		var op Operation
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.each", "action": get(path)}), &op)
		card := b.CardOf(op.Pending.ApprovalID)
		var said struct {
			Claimed struct{ Purpose string }
		}
		if must(t, json.Unmarshal(card.Card, &said)); said.Claimed.Purpose != purpose {
			t.Errorf("the card of %s says %q, not %q", path, said.Claimed.Purpose, purpose)
		}
		if shown := b.Must("pending", card.ApprovalID).Stdout; !strings.Contains(shown, "“"+purpose+"”") {
			t.Errorf("on a terminal:\n%s", shown)
		}
		b.Must("deny", card.ApprovalID)
	}
	wants("/each/1", "tidy up")
	c.Must(wire.MethodAccessRequest, c.Next(map[string]any{"capabilities": []string{"http:demo.write"}, "purpose": "something else"}), nil)
	b.Must("deny", b.WaitCard().ApprovalID)
	wants("/each/2", "tidy up")
}
