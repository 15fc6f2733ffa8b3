package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/yetttest"
)

// approvedRows are the rows of a passkey that is added, approves a card, opens
// reading, and is removed.
type approvedRows struct{ added, decision, act, removed ledger.Row }

func part(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func rowsOf(t *testing.T, a *yetttest.Authenticator) approvedRows {
	t.Helper()
	const card, nonce = `{"approval_id":"a_1"}`, "p_1"
	until := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
	digest := approval.Digest([]byte(card))
	proven := func(message []byte, cards ...string) approval.Proven {
		given := a.Get(message)
		return approval.Proven{By: approval.ByPasskey, Nonce: nonce, Cards: cards, Name: "laptop", Origin: a.Origin, Key: a.COSE(), Assertion: &given}
	}
	request := []byte(`{}`)
	return approvedRows{
		added: ledger.Row{Kind: "passkey.added", Request: part(t, a.Passkey())},
		decision: ledger.Row{Kind: "decision",
			Verified: part(t, map[string]any{"proof": proven(approval.DecisionMessage(digest, approval.ChoiceUntil, until, nonce), digest)}),
			Granted:  part(t, map[string]any{"until": until}),
			Request:  part(t, map[string]any{"approval_id": "a_1", "card_digest": digest, "card": card}),
			Outcome:  part(t, map[string]any{"choice": "until"})},
		act: ledger.Row{Kind: "proof.passkey",
			Request: part(t, map[string]any{"method": "activity.read", "request_sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}),
			Outcome: part(t, map[string]any{"proof": proven(approval.ProofMessage("activity.read", request, nonce))})},
		removed: ledger.Row{Kind: "passkey.removed", Request: part(t, map[string]any{"name": "laptop", "credential_id": a.Passkey().ID})},
	}
}

func replaced(part json.RawMessage, old, new string) json.RawMessage {
	return json.RawMessage(strings.Replace(string(part), old, new, 1))
}

// TestAuditChecksPasskeysAgain: what a passkey approved is checked again from
// the rows, and no part of it can say something else afterwards.
func TestAuditChecksPasskeysAgain(t *testing.T) {
	a := yetttest.NewAuthenticator("http://localhost:7331")
	r := rowsOf(t, a)
	var c approvals
	for _, row := range []ledger.Row{r.added, r.decision, r.act, r.removed} {
		if err := c.look(row); err != nil {
			t.Fatalf("%s: %v", row.Kind, err)
		}
	}
	value := approval.Value{Method: "secret.set", Name: "demo", Kind: "bearer", Place: "https://api.example.com"}
	given := a.Get(value.Message("p_1"))
	aboutAValue := ledger.Row{Kind: "proof.passkey", Request: part(t, map[string]any{"method": value.Method, "name": value.Name, "kind": value.Kind, "place": value.Place}),
		Outcome: part(t, map[string]any{"proof": approval.Proven{By: approval.ByPasskey, Nonce: "p_1", Name: "laptop", Origin: a.Origin, Key: a.COSE(), Assertion: &given}})}
	for _, row := range []ledger.Row{r.added, aboutAValue, r.removed} {
		if err := c.look(row); err != nil {
			t.Errorf("%s, about a value: %v", row.Kind, err)
		}
	}
	if c.checked != 3 {
		t.Errorf("%d acts were checked", c.checked)
	}
	if err := c.look(r.decision); !errors.Is(err, errNotEnrolled) {
		t.Errorf("a passkey that was removed: %v", err)
	}
	if said := screen.NewRows().Line(r.decision); !strings.Contains(said, "by passkey laptop") {
		t.Errorf("yett activity says %q", said)
	}
	other := yetttest.NewAuthenticator(a.Origin)
	other.ID = a.ID
	for what, change := range map[string]func(*approvedRows){
		"nobody added it":   func(r *approvedRows) { r.added = ledger.Row{Kind: "note"} },
		"another key":       func(r *approvedRows) { r.added.Request = part(t, other.Passkey()) },
		"another key's row": func(r *approvedRows) { r.decision = rowsOf(t, other).decision },
		"another choice":    func(r *approvedRows) { r.decision.Outcome = part(t, map[string]any{"choice": "once"}) },
		"another end":       func(r *approvedRows) { r.decision.Granted = replaced(r.decision.Granted, "21:", "23:") },
		"no end":            func(r *approvedRows) { r.decision.Granted = nil },
		"another card":      func(r *approvedRows) { r.decision.Request = replaced(r.decision.Request, "a_1\\\"", "a_2\\\"") },
		"another origin":    func(r *approvedRows) { r.decision.Verified = replaced(r.decision.Verified, "7331", "7332") },
		"no assertion": func(r *approvedRows) {
			r.decision.Verified = replaced(r.decision.Verified, `"assertion"`, `"asserted"`)
		},
		"another method":     func(r *approvedRows) { r.act.Request = replaced(r.act.Request, "read", "list") },
		"another request":    func(r *approvedRows) { r.act.Request = replaced(r.act.Request, "44136fa3", "44136fa4") },
		"an act not told":    func(r *approvedRows) { r.act.Request = replaced(r.act.Request, "request_sha256", "request") },
		"an act of somebody": func(r *approvedRows) { r.act = rowsOf(t, other).act },
	} {
		changed := r
		change(&changed)
		var c approvals
		var found error
		for _, row := range []ledger.Row{changed.added, changed.decision, changed.act} {
			found = errors.Join(found, c.look(row))
		}
		if found == nil {
			t.Errorf("%s: not noticed", what)
		}
	}
}

// TestAuditWantsTheKindThatWasEnrolled: a Touch ID signature is checked again, and
// counts only by a key that an earlier row added as a Touch ID key.
func TestAuditWantsTheKindThatWasEnrolled(t *testing.T) {
	const card, nonce = `{"approval_id":"a_1"}`, "p_1"
	digest := approval.Digest([]byte(card))
	k, signature, err := approval.SignTouchID(make([]byte, approval.SeedSize), approval.DecisionMessage(digest, approval.ChoiceOnce, time.Time{}, nonce))
	if err != nil {
		t.Fatal(err)
	}
	decision := ledger.Row{Kind: "decision",
		Verified: part(t, map[string]any{"proof": approval.Proven{By: approval.ByTouchID, Nonce: nonce, Cards: []string{digest}, Name: "mac", Key: k.Key, Signature: signature}}),
		Request:  part(t, map[string]any{"approval_id": "a_1", "card_digest": digest, "card": card}),
		Outcome:  part(t, map[string]any{"choice": "once"})}
	for kind, want := range map[string]error{"touchid.added": nil, "passkey.added": errNotEnrolled, "": errNotEnrolled} {
		var c approvals
		if err := c.look(ledger.Row{Kind: kind, Request: part(t, k)}); err != nil {
			t.Fatal(err)
		}
		if err := c.look(decision); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", kind, err, want)
		}
	}
	decision.Outcome = part(t, map[string]any{"choice": "until"})
	if err := new(approvals).look(decision); !errors.Is(err, approval.ErrTouchID) {
		t.Errorf("another choice: %v", err)
	}
}
