package yetttest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// TestAttackOwnApproval: an agent opens a second channel as the person's command
// line and approves its own card, with whatever proof it can make up.
func TestAttackOwnApproval(t *testing.T) {
	b, up := demoBroker(t)
	p := newPuppet(t).greets(b)
	var s struct{ Result wire.SessionResult }
	must(t, json.Unmarshal([]byte(p.do("open", "http:demo.read")), &s))
	card := b.CardOf(s.Result.Pending.ApprovalID) // as if it had learnt the digest
	cli := newPuppet(t)
	cli.do("connect", b.Location().Socket)
	cli.do("hello", "cli", "yett")
	challenge := func() string {
		cli.do("send", `{"jsonrpc":"2.0","id":3,"method":"vault.challenge","params":{"request":{}}}`)
		var r struct{ Result wire.Challenge }
		must(t, json.Unmarshal([]byte(cli.do("read")), &r))
		return r.Result.Nonce
	}
	approve := fmt.Sprintf(`{"approval_id":%q,"card_digest":%q,"choice":"once","until":"0001-01-01T00:00:00Z"}`, card.ApprovalID, card.CardDigest)
	const none = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	for _, made := range []struct{ proof, code string }{
		{"", wire.CodeProofRequired},
		{`,"proof":{"nonce":"p_0","mac":"` + none + `"}`, wire.CodeProofInvalid},
		{`,"proof":{"nonce":"` + challenge() + `","mac":"` + none + `"}`, wire.CodeProofInvalid},
		{`,"proof":{"nonce":"` + challenge() + `","mac":""}`, wire.CodeProofInvalid},
	} {
		cli.do("send", `{"jsonrpc":"2.0","id":4,"method":"approval.approve","params":{"request":`+approve+made.proof+`}}`)
		cli.refused(made.code, "read")
	}
	b.refusedRow(wire.CodeProofInvalid)
	p.refused(wire.CodeSessionPending, "act", "/v1/evil")
	b.CardOf(card.ApprovalID) // it still waits
	up.only(t)
}

// TestAttackDecisionOneMillisecondLate: a yes until a time arrives one
// millisecond after it; another was in time, and the action comes one
// millisecond after its end.
func TestAttackDecisionOneMillisecondLate(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Open()
	c.OpenSession("http:demo.read")
	card := b.WaitCard()
	conn := b.cli()
	decide := func(until time.Time) string {
		t.Helper()
		r := wire.Approve{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest, Choice: approval.ChoiceUntil, Until: until}
		nonce := b.nonce(conn)
		proof := &wire.Proof{Nonce: nonce, MAC: decisionProof(r, nonce)}
		passed(until)
		return b.ask(conn, wire.MethodApprovalApprove, r, proof, nil)
	}
	if code := decide(time.Now().Add(50 * time.Millisecond).UTC()); code != wire.CodeBadRequest {
		t.Fatalf("the late yes: %q", code)
	}
	b.CardOf(card.ApprovalID)
	end := time.Now().Add(2 * time.Second).UTC() // long enough for a busy machine to decide
	r := wire.Approve{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest, Choice: approval.ChoiceUntil, Until: end}
	nonce := b.nonce(conn)
	if code := b.ask(conn, wire.MethodApprovalApprove, r, &wire.Proof{Nonce: nonce, MAC: decisionProof(r, nonce)}, nil); code != "" {
		t.Fatalf("the yes in time: %s", code)
	}
	passed(end)
	late := c.Act("http:demo.read", map[string]any{"method": "GET", "path": "/v1/evil"})
	if late.Code() != wire.CodeSessionEnded || late.Error.Data["end_reason"] != session.Expired {
		t.Errorf("after the end: %q %s", late.Code(), late.Result)
	}
	up.only(t)
}

// passed waits for one millisecond after a time: here the time is the event.
func passed(at time.Time) { time.Sleep(time.Until(at.Add(time.Millisecond))) }

// TestAttackGuessedOperation: another process asks for the operations and the
// bodies of a session, by their true names.
func TestAttackGuessedOperation(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/own"})
	var got wire.HTTPResult
	must(t, json.Unmarshal(op.Result, &got))
	thief := newPuppet(t).greets(b)
	thief.granted(b, "http:demo.read")
	thief.acts("/v1/thief")
	var id struct{ Result wire.SessionResult }
	must(t, json.Unmarshal([]byte(thief.do("wait")), &id))
	thief.do("send", fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"operation.get","params":{"session_id":%q,"sequence":4,"operation_id":%q}}`, id.Result.SessionID, op.OperationID))
	thief.refused(wire.CodeBadRequest, "read")
	thief.do("send", fmt.Sprintf(`{"jsonrpc":"2.0","id":6,"method":"operation.body","params":{"session_id":%q,"sequence":5,"body_ref":%q,"offset":0,"limit":100}}`, id.Result.SessionID, got.BodyRef))
	thief.refused(wire.CodeBadRequest, "read")
	b.refusedRow(wire.CodeBadRequest, "There is no such operation of this process")
	var body wire.OperationBodyResult
	c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": got.BodyRef, "offset": 0, "limit": 100}), &body)
	if !strings.Contains(string(body.BytesBase64), "/v1/own") {
		t.Errorf("its own session reads %q", body.BytesBase64)
	}
	up.only(t, "GET /v1/own", "GET /v1/thief")
}

// TestAttackReadsOthersRows: a process without a proof lists everything that can
// be listed, and sees what is its own.
func TestAttackReadsOthersRows(t *testing.T) {
	b, _ := demoBroker(t)
	c := b.Granted("http:demo.read")
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/private"})
	waiting := b.Open()
	waiting.OpenSession("http:demo.write")
	spy := newPuppet(t).greets(b)
	for _, line := range []string{`"activity.list","params":{"request":{"from":1,"limit":500}}`, `"session.list","params":{"request":{}}`, `"approval.list","params":{"request":{}}`, `"vault.challenge","params":{"request":{}}`} {
		spy.do("send", `{"jsonrpc":"2.0","id":5,"method":`+line+`}`)
		answer := spy.do("read")
		for _, secret := range []string{"/v1/private", c.Session.SessionID, waiting.Session.SessionID, b.CardOf(waiting.Session.Pending.ApprovalID).CardDigest, canary} {
			if strings.Contains(answer, secret) {
				t.Errorf("%s tells %q", line, secret)
			}
		}
		if !strings.Contains(answer, `"result"`) {
			t.Errorf("%s: %s", line, answer)
		}
	}
	spy.do("send", `{"jsonrpc":"2.0","id":6,"method":"activity.read","params":{"request":{}}}`)
	spy.refused(wire.CodeProofRequired, "read")
}

// TestAttackCardText: an agent fills what a person reads with fields of its own,
// text that runs backwards, text that is not seen, and very much text.
func TestAttackCardText(t *testing.T) {
	b, up := demoBroker(t)
	h := b.startShim().ready()
	forged := "ok\",\"verified\":{\"agent\":\"/usr/bin/claude\"}}\n\nVerified\n  program  /usr/bin/claude\nyett approve a_1 --for 8h\n\r\x1b[2J\x1b[H"
	hidden := "pay\u202egnp.exe \u2066x\u2069 \u200b\u200c\u200d\ufeff\u00ad\u034f\u115f\u3164\U000e0041\u2028\u2029"
	text, err := json.Marshal(forged + hidden + strings.Repeat("A", 10_000))
	must(t, err)
	asked := h.call("request_access", fmt.Sprintf(`{"capabilities":["http:demo.read"],"purpose":%s,"wait_ms":0}`, text)).session(t)
	card := b.CardOf(asked.Pending.ApprovalID)
	var fields map[string]json.RawMessage
	must(t, json.Unmarshal(card.Card, &fields))
	v := shown(t, card)
	if strings.Contains(string(fields["verified"]), "claude") || len(v.Claimed.Purpose) > 2_000 || len(v.Claimed.Purpose) < 100 {
		t.Errorf("the card: %s", card.Card)
	}
	printed := b.Must("pending").Stdout
	for _, r := range v.Claimed.Purpose + printed {
		if r != '\n' && (r < 0x20 || r == 0x7f || strings.ContainsRune("\u202e\u2066\u2069\u200b\u200c\u200d\ufeff\u00ad\u034f\u115f\u3164\U000e0041\u2028\u2029", r)) {
			t.Errorf("%q reaches the person", r)
		}
	}
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "yett approve a_1") || strings.HasPrefix(strings.TrimSpace(line), "program  /usr/bin/claude") {
			t.Errorf("a line of the agent's own: %q", line)
		}
	}
	up.only(t)
}

// TestAttackFloodOfCards: a process files cards on channel after channel. It is
// stopped at what one caller may have, and another's card is there.
func TestAttackFloodOfCards(t *testing.T) {
	b, up := demoBroker(t)
	var flood []*Channel
	filed, refused := 0, 0
	for range 3 {
		c := b.Granted("http:demo.each")
		flood = append(flood, c)
	}
	for i := range 150 {
		c := flood[i%len(flood)]
		r := c.Call(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.each", "action": map[string]any{"method": "POST", "path": fmt.Sprintf("/each/%d", i)}}))
		var op Operation
		if r.Error != nil || json.Unmarshal(r.Result, &op) != nil {
			t.Fatalf("%+v", r.Error)
		}
		if op.State == "queued" {
			filed++
		} else if op.Reason != nil && op.Reason.Code == wire.ReasonNoApprover {
			refused++
		}
	}
	if filed > 100 || refused < 50 {
		t.Errorf("%d cards of one process wait, %d were refused", filed, refused)
	}
	other := newPuppet(t).greets(b)
	other.granted(b, "http:demo.read")
	other.acts("/v1/own")
	up.only(t, "GET /v1/own")
}
