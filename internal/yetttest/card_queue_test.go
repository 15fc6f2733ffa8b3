package yetttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// TestP01_RepeatedRequestsAreOneCardWithACount: asking again makes no new card,
// but the person sees that it was asked again.
func TestP01_RepeatedRequestsAreOneCardWithACount(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary)
	c := b.Open()
	c.OpenSession()
	for range 3 {
		c.Must(wire.MethodAccessRequest, c.Next(map[string]any{"capabilities": []string{"http:demo.read"}, "purpose": "poll", "wait_ms": 0}), &c.Session)
	}
	cards := b.Pending()
	if len(cards) != 1 || cards[0].Asked != 3 || cards[0].SessionID != c.Session.SessionID {
		t.Fatalf("%d cards: %+v", len(cards), cards)
	}
	if shown := b.Must("pending").Stdout; !strings.Contains(shown, "asked 3 times") {
		t.Errorf("the person does not see it:\n%s", shown)
	}
}

// TestP01_AFloodHidesNoCard: a hundred cards of one process do not push the
// card of another out of sight, and the list stays one that can be read.
func TestP01_AFloodHidesNoCard(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	flooder := b.Granted("http:demo.each")
	for i := range 100 {
		frame, err := wire.EncodeRequest(int64(1000+i), wire.MethodActionRequest, flooder.Next(map[string]any{"capability": "http:demo.each",
			"action": map[string]any{"method": "POST", "path": fmt.Sprintf("/each/%d", i), "body": strings.Repeat("x", 10_000)}}))
		must(t, err)
		flooder.Write(frame)
	}
	for range 100 {
		if r, ok := flooder.Read(); !ok || r.Error != nil {
			t.Fatalf("%v %+v", ok, r.Error)
		}
	}
	victim := player("native", b.Home, "itself")
	must(t, victim.Start())
	t.Cleanup(func() { victim.Process.Kill(); victim.Wait() })
	pid := fmt.Sprintf("pid %d of user", victim.Process.Pid)
	b.untilSessions(2)
	out := b.Must("pending").Stdout
	if !strings.Contains(out, pid) {
		t.Errorf("the card of the other process is not shown in full:\n%.3000s", out)
	}
	if n := strings.Count(out, "\n"); n > 1200 {
		t.Errorf("the list has %d lines", n)
	}
	if !strings.Contains(out, "yett revoke --home "+b.Home+" "+flooder.Session.SessionID) {
		t.Errorf("nobody says how to be rid of the flood:\n%s", out[max(0, len(out)-600):])
	}
	if first := strings.Index(out, pid); first > len(out)/2 {
		t.Error("the card of the other process stands behind the flood")
	}
	b.Must("revoke", flooder.Session.SessionID)
	if cards := b.Pending(); len(cards) != 1 {
		t.Errorf("%d cards wait after the flooder's session was revoked", len(cards))
	}
}

// untilSessions waits until so many sessions have cards or grants.
func (b *Broker) untilSessions(n int) {
	b.T.Helper()
	b.eventually(func() bool { return len(b.Sessions()) >= n })
	b.eventually(func() bool {
		sessions := map[string]bool{}
		for _, c := range b.Pending() {
			sessions[c.SessionID] = true
		}
		return len(sessions) >= n
	})
}

// TestACardGoesWithItsCaller: nobody can approve for a process that has gone.
func TestACardGoesWithItsCaller(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary)
	agent := player("native", b.Home, "itself")
	must(t, agent.Start())
	card := b.WaitCard()
	must(t, agent.Process.Kill())
	agent.Wait()
	b.eventually(func() bool { return len(b.Pending()) == 0 })
	r := b.Run("approve", card.ApprovalID, "--digest", card.CardDigest)
	if r.Code != 1 || !strings.Contains(r.Stderr, "No such card waits") {
		t.Errorf("exit %d %s", r.Code, r.Stderr)
	}
}

// TestReadingIsOpenedByProof: an agent's process learns how much there is and
// what is its own; nothing that others asked for, and nothing that a decision
// could be made from.
func TestReadingIsOpenedByProof(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	other := player("native", b.Home, "itself") // waits for its card
	must(t, other.Start())
	t.Cleanup(func() { other.Process.Kill(); other.Wait() })
	otherCard := b.WaitCard()
	own := b.Open()
	own.OpenSession()

	spy := b.Open()
	list := func(ch *Channel, method string, request, result any) {
		t.Helper()
		raw, err := json.Marshal(request)
		must(t, err)
		ch.Must(method, wire.Managed{Request: raw}, result)
	}
	var cards wire.List[Card]
	list(spy, wire.MethodApprovalList, wire.ApprovalList{}, &cards)
	if len(cards.Items) != 1 || cards.Items[0].CardDigest != "" || cards.Items[0].Card != nil || cards.Items[0].SessionID != "" || cards.Items[0].Asked != 0 {
		t.Errorf("without proof: %+v", cards.Items)
	}
	list(spy, wire.MethodApprovalList, wire.ApprovalList{ApprovalID: otherCard.ApprovalID}, &cards)
	if len(cards.Items) != 1 || cards.Items[0].Card != nil {
		t.Errorf("one by its id, without proof: %+v", cards.Items)
	}
	var sessions wire.List[wire.Session]
	list(spy, wire.MethodSessionList, wire.Empty{}, &sessions)
	if len(sessions.Items) != 1 || sessions.Items[0].SessionID != own.Session.SessionID || sessions.Hidden != 1 {
		t.Errorf("sessions without proof: %+v, %d hidden", sessions.Items, sessions.Hidden)
	}
	var rows wire.List[Row]
	list(spy, wire.MethodActivityList, wire.ActivityList{From: 1, Limit: 500}, &rows)
	for _, r := range rows.Items {
		if r.SessionID != own.Session.SessionID {
			t.Errorf("row %d of %s without proof", r.N, r.Kind)
		}
	}
	if len(rows.Items) == 0 || rows.Hidden == 0 {
		t.Errorf("%d own rows, %d hidden", len(rows.Items), rows.Hidden)
	}
	for _, command := range [][]string{{"pending"}, {"sessions"}, {"activity"}, {"pending", "--json"}, {"sessions", "--json"}, {"activity", "--json"}} {
		r := b.RunPlain(command...) // a child of this agent
		if r.Code != 0 || strings.Contains(r.Stdout, otherCard.CardDigest) || strings.Contains(r.Stdout, "native") {
			t.Errorf("yett %v without proof: exit %d\n%s", command, r.Code, r.Stdout)
		}
	}
	// A proof opens reading on its channel and on no other.
	conn := b.cli()
	b.reading(conn)
	var read wire.List[Card]
	b.ask(conn, wire.MethodApprovalList, wire.ApprovalList{}, nil, &read)
	if len(read.Items) != 1 || read.Items[0].CardDigest != otherCard.CardDigest {
		t.Errorf("after a proof: %+v", read.Items)
	}
	list(spy, wire.MethodApprovalList, wire.ApprovalList{}, &cards)
	if cards.Items[0].Card != nil {
		t.Error("the proof on one channel opened another")
	}
	if bytes.Contains(spy.Got.Bytes(), []byte(otherCard.CardDigest)) {
		t.Error("the digest reached the agent")
	}
}

// TestP02_AGrantIsOfOneSession: what one session was given, neither another of
// the same program nor a later one of the same process has.
func TestP02_AGrantIsOfOneSession(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	a := b.Granted("http:demo.read") // until a time: the most that can be given
	get := map[string]any{"method": "GET", "path": "/v1/x"}
	if op := a.MustAct("http:demo.read", get); op.State != "completed" {
		t.Fatalf("%+v", op)
	}
	denied := func(c *Channel, who string) {
		t.Helper()
		if op := c.MustAct("http:demo.read", get); op.State != "denied" || op.Reason.Code != wire.ReasonCapabilityNotGranted {
			t.Errorf("%s: %+v", who, op)
		}
	}
	second := b.Open() // the same process, another session
	second.OpenSession()
	denied(second, "another session of the same process")

	twin := exec.Command("/proc/self/exe", b.Home, "itself") // the same program, another process
	twin.Env = []string{roleVariable + "=native"}
	must(t, twin.Start())
	t.Cleanup(func() { twin.Process.Kill(); twin.Wait() })
	card := b.WaitCard()
	if !bytes.Contains(card.Card, fmt.Appendf(nil, `"pid":%d`, twin.Process.Pid)) {
		t.Errorf("the twin's card is not its own: %s", card.Card)
	}

	var listed *wire.Session
	for _, s := range b.Sessions() {
		if s.SessionID == a.Session.SessionID {
			listed = &s
		}
	}
	if listed == nil || fmt.Sprint(listed.Capabilities) != "[http:demo.read]" || listed.State != "active" {
		t.Fatalf("the grant is not listed: %+v", listed)
	}
	b.Must("revoke", a.Session.SessionID)
	if r := a.Act("http:demo.read", get); r.Code() != wire.CodeSessionEnded {
		t.Errorf("after the revocation: %q", r.Code())
	}
	later := b.Open()
	later.OpenSession("http:demo.read")
	if later.Session.State != "pending" || later.Session.Pending == nil {
		t.Errorf("a later session of the process: %+v", later.Session)
	}
	denied(second, "the other session after the end of the first")
	if len(up.Seen()) != 1 {
		t.Errorf("upstream saw %v", up.Seen())
	}
}

// eventually waits until something is so.
func (b *Broker) eventually(isSo func() bool) {
	b.T.Helper()
	for deadline := time.Now().Add(Patience); !isSo(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.T.Fatal("it did not become so")
		}
	}
}
