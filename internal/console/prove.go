package console

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// phrase is a passphrase or recovery code on its way; it is wiped after use.
type phrase []byte

// read decodes the body of a request strictly. The bytes of the body are wiped:
// a phrase or a value was in them.
func read(r *http.Request, v any) *wire.Error {
	body, err := io.ReadAll(r.Body)
	defer clear(body)
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "The request is too long or did not arrive.")
	}
	return wire.DecodeParams(body, v)
}

// ask makes one request of management and gives its typed answer.
func ask[T any](p Page, method string, request any) (T, *wire.Error) {
	var none T
	raw, err := json.Marshal(request)
	if err != nil {
		return none, wire.NewError(wire.CodeInternal)
	}
	defer clear(raw)
	return answered[T](p.Ask(method, wire.Managed{Request: raw}))
}

func answered[T any](result any, fail *wire.Error) (T, *wire.Error) {
	v, ok := result.(T)
	if fail == nil && !ok {
		fail = wire.NewError(wire.CodeInternal)
	}
	return v, fail
}

// prove makes a request with the person's proof over its exact bytes.
func prove(p Page, keys Keys, method string, request any) *wire.Error {
	raw, err := json.Marshal(request)
	if err != nil {
		return wire.NewError(wire.CodeInternal)
	}
	defer clear(raw)
	c, fail := ask[wire.Challenge](p, wire.MethodVaultChallenge, wire.Empty{})
	if fail != nil {
		return fail
	}
	proof := &wire.Proof{Nonce: c.Nonce, MAC: keys.Sign(approval.ProofMessage(method, raw, c.Nonce))}
	_, fail = p.Ask(method, wire.Managed{Request: raw, Proof: proof})
	return fail
}

// open takes a proof, unlocks if that is what it takes, opens reading and gives
// the page its token.
func (c *Console) open(w http.ResponseWriter, r *http.Request) {
	var in gesture
	defer func() { in.wipe() }()
	if fail := read(r, &in); fail != nil {
		refuse(w, fail)
		return
	}
	if in.Assertion != nil {
		c.openByPasskey(w, r, in)
		return
	}
	p, fail := c.newPage(r)
	if fail != nil {
		refuse(w, fail)
		return
	}
	told, fail := c.openWith(p, in.Phrase)
	if fail != nil {
		p.Close()
		refuse(w, fail)
		return
	}
	c.drop(bearer(r)) // of the same page, before its reading ended
	v := visitOf(r)
	c.traffic.proved(v)
	answer(w, http.StatusOK, map[string]any{"token": c.keep(p, v.key), "told": told})
}

func (c *Console) openWith(p Page, said phrase) (told []string, fail *wire.Error) {
	keys, fail := p.Derive(said)
	if fail != nil {
		return nil, fail
	}
	defer keys.Wipe()
	told = []string{}
	if c.Broker.Status().State == "locked" {
		u, fail := ask[wire.Unlocked](p, wire.MethodVaultUnlock, wire.Unlock{Slot: keys.Slot(), UnlockKey: keys.Unlock()})
		if fail != nil {
			return nil, fail
		}
		told = append(told, unlockedWords(u)...)
	}
	return told, prove(p, keys, wire.MethodActivityRead, wire.Empty{})
}

func (c *Console) closePage(w http.ResponseWriter, r *http.Request) {
	c.drop(bearer(r))
	answer(w, http.StatusOK, wire.Empty{})
}

// gesture is what proves one act: a passphrase, or a passkey's answer to the
// challenge that this page was given. A click proves only what the broker says
// it may.
type gesture struct {
	Phrase    phrase          `json:"phrase,omitempty" wire:"optional"`
	Nonce     string          `json:"nonce,omitempty" wire:"optional"`
	Assertion *wire.Assertion `json:"assertion,omitempty" wire:"optional"`
	Click     bool            `json:"click,omitempty" wire:"optional"`
}

func (g *gesture) wipe() { clear(g.Phrase) }

// prove makes the proof of a message; keys is nil where there was no passphrase.
func (g *gesture) prove(p Page, message func(nonce string) []byte) (keys Keys, proof *wire.Proof, fail *wire.Error) {
	switch {
	case g.Assertion != nil:
		return nil, &wire.Proof{Nonce: g.Nonce, Assertion: g.Assertion}, nil
	case g.Click:
		proof, fail = clicked(p)
		return nil, proof, fail
	}
	return signed(p, g.Phrase, message)
}

// decision is what a person decided about the cards that were shown. Minutes is
// for the first message about it; Until is what the challenge was made for.
type decision struct {
	Cards   []wire.CardNamed `json:"cards"`
	Choice  string           `json:"choice"`
	Minutes int              `json:"minutes,omitempty" wire:"optional"`
	Until   time.Time        `json:"until,omitzero" wire:"optional"`
	Gesture gesture          `json:"gesture,omitzero" wire:"optional"`
}

func (d decision) approveAll() wire.ApproveAll {
	all := wire.ApproveAll{Cards: d.Cards, Choice: d.Choice, Until: d.Until}
	if d.Choice == approval.ChoiceUntil && d.Until.IsZero() {
		// what is beyond the longest grant stays beyond it: the broker refuses it
		minutes := min(max(d.Minutes, 0), int(approval.MaxGrant/time.Minute)+1)
		all.Until = time.Now().Add(time.Duration(minutes) * time.Minute).UTC().Truncate(time.Second)
	}
	return all
}

// message is what a proof of the decision covers.
func message(d wire.ApproveAll, nonce string) []byte {
	digests := make([]string, len(d.Cards))
	for i, card := range d.Cards {
		digests[i] = card.CardDigest
	}
	return approval.DecisionsMessage(digests, d.Choice, d.Until, nonce)
}

// decide says yes to the cards that were shown, once or until a time: one proof
// over all their digests.
func (c *Console) decide(w http.ResponseWriter, r *http.Request, o *opened) {
	var in decision
	defer func() { in.Gesture.wipe() }()
	if fail := read(r, &in); fail != nil {
		refuse(w, fail)
		return
	}
	all := in.approveAll()
	raw, err := json.Marshal(all)
	if err != nil {
		refuse(w, wire.NewError(wire.CodeInternal))
		return
	}
	keys, proof, fail := in.Gesture.prove(o.page, func(nonce string) []byte { return message(all, nonce) })
	if fail != nil {
		refuse(w, fail)
		return
	}
	if keys != nil {
		defer keys.Wipe()
	}
	result, fail := answered[wire.ApprovedAll](o.page.Ask(wire.MethodApproveAll, wire.Managed{Request: raw, Proof: proof}))
	if fail != nil {
		refuse(w, fail)
		return
	}
	if keys != nil {
		c.renew(o, keys)
	}
	results := make([]decided, len(result.Cards))
	for i, card := range result.Cards {
		results[i] = allowed(card)
	}
	answer(w, http.StatusOK, map[string]any{"results": results})
}

// signed makes the proof of a message by a passphrase.
func signed(p Page, said phrase, message func(nonce string) []byte) (Keys, *wire.Proof, *wire.Error) {
	keys, fail := p.Derive(said)
	if fail != nil {
		return nil, nil, fail
	}
	c, fail := ask[wire.Challenge](p, wire.MethodVaultChallenge, wire.Empty{})
	if fail != nil {
		keys.Wipe()
		return nil, nil, fail
	}
	return keys, &wire.Proof{Nonce: c.Nonce, MAC: keys.Sign(message(c.Nonce))}, nil
}

// renew lets a page that decides go on being read.
func (c *Console) renew(o *opened, keys Keys) {
	c.mu.Lock()
	fresh := time.Since(o.since) < renewAfter
	c.mu.Unlock()
	if o.page.Reading() && fresh {
		return
	}
	if fail := prove(o.page, keys, wire.MethodActivityRead, wire.Empty{}); fail == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.since = time.Now()
	}
}

// deny says no. Like everything that narrows it takes no proof.
func (c *Console) deny(w http.ResponseWriter, r *http.Request, p Page) {
	var in struct {
		IDs []string `json:"approval_ids"`
	}
	if fail := read(r, &in); fail != nil {
		refuse(w, fail)
		return
	}
	results := make([]decided, 0, len(in.IDs))
	for _, id := range in.IDs {
		_, fail := ask[wire.Empty](p, wire.MethodApprovalDeny, wire.ApprovalID{ApprovalID: id})
		results = append(results, denied(id, fail))
	}
	answer(w, http.StatusOK, map[string]any{"results": results})
}

func (c *Console) revoke(w http.ResponseWriter, r *http.Request, p Page) {
	var in wire.SessionID
	fail := read(r, &in)
	if fail == nil {
		_, fail = ask[wire.Revoked](p, wire.MethodSessionRevoke, wire.Revoke{SessionID: in.SessionID})
	}
	done(w, fail)
}

// lock closes the vault, or pauses the sessions with it.
func (c *Console) lock(w http.ResponseWriter, r *http.Request, p Page) {
	var in struct {
		Pause bool `json:"pause,omitempty" wire:"optional"`
	}
	fail := read(r, &in)
	if fail == nil {
		method := wire.MethodVaultLock
		if in.Pause {
			method = wire.MethodVaultPause
		}
		_, fail = ask[wire.Empty](p, method, wire.Empty{})
	}
	done(w, fail)
}

func done(w http.ResponseWriter, fail *wire.Error) {
	if fail != nil {
		refuse(w, fail)
		return
	}
	answer(w, http.StatusOK, wire.Empty{})
}
