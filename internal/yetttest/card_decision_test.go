package yetttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// cli is a connection as the command line makes one.
func (b *Broker) cli() *client.Conn {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	must(b.T, err)
	b.T.Cleanup(func() { conn.Close() })
	return conn
}

// ask makes a management request and returns the code of the refusal, or "".
func (b *Broker) ask(conn *client.Conn, method string, request any, proof *wire.Proof, result any) string {
	b.T.Helper()
	raw, err := json.Marshal(request)
	must(b.T, err)
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err = conn.Call(ctx, method, wire.Managed{Request: raw, Proof: proof}, result)
	var fail *client.Error
	if errors.As(err, &fail) {
		return fail.Code
	}
	must(b.T, err)
	return ""
}

func (b *Broker) nonce(conn *client.Conn) string {
	b.T.Helper()
	var c wire.Challenge
	if code := b.ask(conn, wire.MethodVaultChallenge, wire.Empty{}, nil, &c); code != "" {
		b.T.Fatal(code)
	}
	return c.Nonce
}

// TestADecisionIsProvenAsItIs: a proof is for one card, one choice, one end and
// one nonce of one connection. Whoever swaps one of them decides nothing.
func TestADecisionIsProvenAsItIs(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary, "old", canary)
	c := b.Open()
	c.OpenSession("http:demo.read")
	card := b.WaitCard()
	other := b.Open()
	other.OpenSession("http:old.status")
	conn, elsewhere := b.cli(), b.cli()
	until := time.Now().Add(time.Hour).UTC()
	once := wire.Approve{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest, Choice: approval.ChoiceOnce}
	timed := once
	timed.Choice, timed.Until = approval.ChoiceUntil, until
	otherID := other.Session.Pending.ApprovalID
	with := func(r wire.Approve, change func(*wire.Approve)) wire.Approve { change(&r); return r }

	for name, test := range map[string]struct {
		proven, sent wire.Approve
		want         string
	}{
		"another choice":        {once, timed, wire.CodeProofInvalid},
		"a choice taken back":   {timed, once, wire.CodeProofInvalid},
		"a later end":           {timed, with(timed, func(r *wire.Approve) { r.Until = until.Add(time.Millisecond) }), wire.CodeProofInvalid},
		"an earlier end":        {timed, with(timed, func(r *wire.Approve) { r.Until = until.Add(-time.Millisecond) }), wire.CodeProofInvalid},
		"another digest":        {once, with(once, func(r *wire.Approve) { r.CardDigest = b.CardOf(otherID).CardDigest }), wire.CodeProofInvalid},
		"another card":          {once, with(once, func(r *wire.Approve) { r.ApprovalID = otherID }), wire.CodeProofInvalid},
		"an unknown card":       {once, with(once, func(r *wire.Approve) { r.ApprovalID = "a_0" }), wire.CodeBadRequest},
		"once with an end":      {with(once, func(r *wire.Approve) { r.Until = until }), with(once, func(r *wire.Approve) { r.Until = until }), wire.CodeBadRequest},
		"no choice":             {with(once, func(r *wire.Approve) { r.Choice = "" }), with(once, func(r *wire.Approve) { r.Choice = "" }), wire.CodeBadRequest},
		"deny as a yes":         {with(once, func(r *wire.Approve) { r.Choice = "deny" }), with(once, func(r *wire.Approve) { r.Choice = "deny" }), wire.CodeBadRequest},
		"more than eight hours": {with(timed, func(r *wire.Approve) { r.Until = until.Add(8 * time.Hour) }), with(timed, func(r *wire.Approve) { r.Until = until.Add(8 * time.Hour) }), wire.CodeBadRequest},
		"in the past":           {with(timed, func(r *wire.Approve) { r.Until = until.Add(-2 * time.Hour) }), with(timed, func(r *wire.Approve) { r.Until = until.Add(-2 * time.Hour) }), wire.CodeBadRequest},
	} {
		nonce := b.nonce(conn)
		proof := &wire.Proof{Nonce: nonce, MAC: decisionProof(test.proven, nonce)}
		if code := b.ask(conn, wire.MethodApprovalApprove, test.sent, proof, nil); code != test.want {
			t.Errorf("%s: %q, want %q", name, code, test.want)
		}
	}

	raw, err := json.Marshal(once)
	must(t, err)
	first, foreign := b.nonce(conn), b.nonce(elsewhere)
	for name, proof := range map[string]*wire.Proof{
		"no proof":                    nil,
		"a nonce of nobody":           {Nonce: "p_0", MAC: decisionProof(once, "p_0")},
		"a nonce of another channel":  {Nonce: foreign, MAC: decisionProof(once, foreign)},
		"a proof of another request":  {Nonce: first, MAC: vault.Proof(template.keys.Approval, approval.ProofMessage(wire.MethodApprovalApprove, raw, first))},
		"the unlock key":              nil,
		"a code without its last bit": nil,
		"no code":                     nil,
	} {
		want := wire.CodeProofInvalid
		switch name {
		case "no proof":
			want = wire.CodeProofRequired
		case "the unlock key":
			n := b.nonce(conn)
			proof = &wire.Proof{Nonce: n, MAC: vault.Proof(template.keys.Unlock, approval.DecisionMessage(once.CardDigest, once.Choice, once.Until, n))}
		case "a code without its last bit":
			n := b.nonce(conn)
			proof = &wire.Proof{Nonce: n, MAC: decisionProof(once, n)}
			proof.MAC[31] ^= 1
		case "no code":
			proof = &wire.Proof{Nonce: b.nonce(conn), MAC: []byte{}}
		}
		if code := b.ask(conn, wire.MethodApprovalApprove, once, proof, nil); code != want {
			t.Errorf("%s: %q, want %q", name, code, want)
		}
	}
	if got := len(b.Pending()); got != 2 {
		t.Fatalf("%d cards wait, want both", got)
	}

	nonce := b.nonce(conn)
	good := &wire.Proof{Nonce: nonce, MAC: decisionProof(once, nonce)}
	if code := b.ask(conn, wire.MethodApprovalApprove, once, good, nil); code != "" {
		t.Fatalf("the decision itself: %s", code)
	}
	// The same bytes again, for a card that would fit them if there were one.
	if code := b.ask(conn, wire.MethodApprovalApprove, once, good, nil); code != wire.CodeProofInvalid {
		t.Errorf("a replay: %q", code)
	}
	if got := b.Pending(); len(got) != 1 || got[0].ApprovalID != otherID {
		t.Errorf("%+v wait", got)
	}
}

func decisionProof(r wire.Approve, nonce string) []byte {
	return vault.Proof(template.keys.Approval, approval.DecisionMessage(r.CardDigest, r.Choice, r.Until, nonce))
}

// TestAnActionIsNotApprovedForATime: what a card does not offer cannot be chosen.
func TestAnActionIsNotApprovedForATime(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary)
	c := b.Granted("http:demo.pay")
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.pay", "action": map[string]any{"method": "POST", "path": "/v1/payments"}}), &op)
	card := b.CardOf(op.Pending.ApprovalID)
	if r := b.Run("approve", card.ApprovalID, "--digest", card.CardDigest, "--for", "1h"); r.Code == 0 || !strings.Contains(r.Stderr, "once") {
		t.Fatalf("exit %d %s", r.Code, r.Stderr)
	}
	b.CardOf(op.Pending.ApprovalID)
}

// TestA1_TheUnitIsOne: card, session and rows say the same unit, for each way
// in which a person is asked.
func TestA1_TheUnitIsOne(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)

	t.Run("process", func(t *testing.T) {
		c := b.Open()
		c.OpenSession("http:demo.read")
		card := b.CardOf(c.Session.Pending.ApprovalID)
		b.Approve(card, "--for", "1h")
		c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), nil)
		op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
		b.oneUnit(t, card, c.Session.SessionID, op.OperationID, action.UnitProcess, action.UnitProcess)
	})
	t.Run("operation by confirm", func(t *testing.T) {
		c := b.Granted("http:demo.each")
		var op Operation
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.each", "action": map[string]any{"method": "POST", "path": "/each/x"}}), &op)
		card := b.CardOf(op.Pending.ApprovalID)
		b.Approve(card)
		c.Must(wire.MethodOperationGet, c.Next(map[string]any{"operation_id": op.OperationID, "wait_ms": 30_000}), &op)
		if op.State != "completed" {
			t.Fatalf("%+v", op)
		}
		b.oneUnit(t, card, c.Session.SessionID, op.OperationID, action.UnitOperation, action.UnitProcess)
	})
}

// oneUnit compares the card, the session and the rows of the session, of the
// decision and of the action. The session of an action that is asked for by
// itself keeps the unit of its own card.
func (b *Broker) oneUnit(t *testing.T, card Card, sessionID, operationID string, want, ofSession action.Unit) {
	t.Helper()
	var shown approval.Card
	must(t, json.Unmarshal(card.Card, &shown))
	if shown.Granting.Unit != want {
		t.Errorf("the card says %s", shown.Granting.Unit)
	}
	for _, s := range b.Sessions() {
		if s.SessionID == sessionID && s.Unit != ofSession {
			t.Errorf("the session says %s", s.Unit)
		}
	}
	if list := b.Must("sessions").Stdout; !strings.Contains(list, string(ofSession)) {
		t.Errorf("yett sessions does not say %s:\n%s", ofSession, list)
	}
	seen := map[string]int{}
	for _, r := range b.Activity() {
		var verified, granted struct{ Unit action.Unit }
		json.Unmarshal(r.Verified, &verified)
		json.Unmarshal(r.Granted, &granted)
		switch {
		case r.SessionID != sessionID:
		case r.Kind == "session.opened":
			seen[r.Kind]++
			if verified.Unit != ofSession {
				t.Errorf("row %d %s says %s", r.N, r.Kind, verified.Unit)
			}
		case r.Kind == "decision" && bytes.Contains(r.Request, []byte(card.ApprovalID)), r.Kind == "intent" && r.OperationID == operationID:
			seen[r.Kind]++
			if granted.Unit != want {
				t.Errorf("row %d %s says %q: %s", r.N, r.Kind, granted.Unit, r.Granted)
			}
		}
	}
	if seen["session.opened"] != 1 || seen["decision"] != 1 || seen["intent"] != 1 {
		t.Errorf("rows %v", seen)
	}
}

// TestA1_TheUnitOfARepetition: the card about an equal action whose outcome is
// unknown is about one action.
func TestA1_TheUnitOfARepetition(t *testing.T) {
	up, arrived := hangs(t)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.write")
	post := map[string]any{"capability": "http:demo.write", "action": map[string]any{"method": "POST", "path": "/v1/hang"}}
	c.Must(wire.MethodActionRequest, c.Next(post), nil)
	<-arrived
	b.Restart()
	c = b.Granted("http:demo.write")
	if r := c.Call(wire.MethodActionRequest, c.Next(post)); r.Code() != wire.CodeOutcomeUnknown {
		t.Fatalf("%q", r.Code())
	}
	card := b.WaitCard()
	b.Approve(card)
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(post), &op)
	<-arrived
	b.oneUnit(t, card, c.Session.SessionID, op.OperationID, action.UnitOperation, action.UnitProcess)
}

// TestTheApproverIsARecordedFact: a decision that comes from a process that the
// agent has started, or on its terminal, is told from one that does not.
func TestTheApproverIsARecordedFact(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary)
	c := b.Open() // the agent is this process
	c.OpenSession("http:demo.read")
	card := b.CardOf(c.Session.Pending.ApprovalID)
	if r := b.Run("approve", card.ApprovalID, "--digest", card.CardDigest); r.Code != 0 { // started by the agent
		t.Fatal(r.Stderr)
	}
	kinship := func(approvalID string) (k action.Kinship, terminal bool) {
		t.Helper()
		for _, r := range b.Activity() {
			if r.Kind != "decision" || !bytes.Contains(r.Request, []byte(approvalID)) {
				continue
			}
			var v struct {
				Approver struct {
					Kinship  action.Kinship
					Terminal bool `json:"shares_terminal_with_agent"`
				}
			}
			if err := json.Unmarshal(r.Verified, &v); err != nil {
				t.Fatalf("%v in %s", err, r.Verified)
			}
			var g struct {
				Capabilities []string
				Unit         action.Unit
			}
			json.Unmarshal(r.Granted, &g)
			if fmt.Sprint(g) != "{[http:demo.read] process}" {
				t.Errorf("the row says that %s was granted", r.Granted)
			}
			return v.Approver.Kinship, v.Approver.Terminal
		}
		t.Fatal("the decision is no row")
		return
	}
	if k, terminal := kinship(card.ApprovalID); k.Relation != action.KinDescendant || terminal {
		t.Errorf("a child of the agent decided: %+v, terminal %v", k, terminal)
	}
	own := b.Open()
	own.OpenSession("http:demo.read")
	card = b.CardOf(own.Session.Pending.ApprovalID)
	b.Approve(card) // by the agent itself
	if k, _ := kinship(card.ApprovalID); k.Relation != action.KinSame {
		t.Errorf("the agent itself decided: %+v", k)
	}
}

// TestACardWithMarkupIsShown: <, > and & are text like any other, although
// encoders of JSON write them with escapes: the card is shown by its id, as text
// and as JSON, and the digest is that of the document.
func TestACardWithMarkupIsShown(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary, "old", canary)
	c := b.Open()
	c.OpenSession()
	const purpose = "R & D: a < b, <script>"
	c.Must(wire.MethodAccessRequest, c.Next(map[string]any{"capabilities": []string{"http:demo.read"}, "purpose": purpose}), nil)
	card := b.WaitCard()
	if shown := b.Must("pending", card.ApprovalID).Stdout; !strings.Contains(shown, purpose) || !strings.Contains(shown, card.CardDigest) {
		t.Errorf("the card is shown as\n%s", shown)
	}
	var one wire.Approval
	b.Must("pending", card.ApprovalID, "--json").JSON(t, &one)
	if document, err := approval.Received(one.Card, one.CardDigest); err != nil || !bytes.Contains(document, []byte(purpose)) {
		t.Errorf("%v: %s", err, document)
	}
	one.Card = bytes.Replace(one.Card, []byte("R & D"), []byte("R & C"), 1)
	if _, err := approval.Received(one.Card, one.CardDigest); err == nil {
		t.Error("another document was taken for the card")
	}
}

// TestALockTakesReadingBack: what a proof opened on a connection does not
// outlive the open vault, also when somebody else unlocks it again.
func TestALockTakesReadingBack(t *testing.T) {
	b := Start(t, cardAccess, "demo", canary, "old", canary)
	conn := b.cli()
	hidden := func() int {
		var l wire.List[json.RawMessage]
		if code := b.ask(conn, wire.MethodActivityList, wire.ActivityList{Limit: 500}, nil, &l); code != "" {
			t.Fatal(code)
		}
		return l.Hidden
	}
	for _, method := range []string{wire.MethodVaultLock, wire.MethodVaultPause} {
		b.reading(conn)
		if n := hidden(); n != 0 {
			t.Fatalf("%d rows are hidden in spite of the proof", n)
		}
		b.ask(b.cli(), method, wire.Empty{}, nil, nil)
		b.Unlock()
		if hidden() == 0 {
			t.Errorf("after %s the connection reads all rows without another proof", method)
		}
	}
}
