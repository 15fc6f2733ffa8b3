package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// wanted is what a page asks a challenge for: opening the page, a decision,
// deciding by a click for a while, or storing a value.
type wanted struct {
	Clicks   bool      `json:"clicks,omitempty" wire:"optional"`
	Decision *decision `json:"decision,omitempty" wire:"optional"`
	Value    *valueFor `json:"value,omitempty" wire:"optional"`
}

// asked tells a page what to ask a passkey for.
type asked struct {
	Token        string    `json:"token,omitempty"` // of a page to which nothing is open yet
	Nonce        string    `json:"nonce"`
	Challenge    string    `json:"challenge"` // base64url, as WebAuthn has it
	RelyingParty string    `json:"relying_party"`
	IDs          [][]byte  `json:"credential_ids"` // none before a proof: the browser finds one
	Until        time.Time `json:"until,omitzero"`
}

// readingRequest is the request whose proof opens reading.
var readingRequest = []byte("{}")

// challenge makes the challenge of one act. A page that has no token yet gets
// one, with which it can do nothing but answer.
func (c *Console) challenge(w http.ResponseWriter, r *http.Request) {
	var in wanted
	if fail := read(r, &in); fail != nil {
		refuse(w, fail)
		return
	}
	o, token := c.find(r), ""
	if o == nil {
		p, fail := c.newPage(r)
		if fail != nil {
			refuse(w, fail)
			return
		}
		token = c.keep(p, visitOf(r).key)
		o = &opened{page: p}
	}
	ch, fail := ask[wire.Challenge](o.page, wire.MethodVaultChallenge, wire.Empty{})
	if fail == nil && (ch.Passkeys == nil || !ch.Passkeys.Any) {
		fail = wire.Errorf(wire.CodeBadRequest, "There is no passkey to ask for.")
		fail.NextStep = "Use the passphrase; a passkey is added under Access."
	}
	var text []byte
	var until time.Time
	if fail == nil {
		text, until, fail = in.message(o.page, ch.Nonce)
	}
	if fail != nil {
		c.drop(token)
		refuse(w, fail)
		return
	}
	a := asked{Token: token, Nonce: ch.Nonce, RelyingParty: ch.Passkeys.RelyingParty, IDs: ch.Passkeys.IDs, Until: until}
	a.Challenge = base64.RawURLEncoding.EncodeToString(approval.Challenge(text))
	answer(w, http.StatusOK, a)
}

// message is what an answer to the challenge will cover, and the end of what is
// given for a time.
func (in wanted) message(p Page, nonce string) (text []byte, until time.Time, fail *wire.Error) {
	switch {
	case in.Decision != nil:
		all := in.Decision.approveAll()
		return message(all, nonce), all.Until, nil
	case in.Value != nil:
		text, fail = in.Value.message(p, nonce)
		return text, until, fail
	case in.Clicks:
		return approval.ProofMessage(wire.MethodApprovalClick, clickRequest, nonce), until, nil
	}
	return approval.ProofMessage(wire.MethodActivityRead, readingRequest, nonce), until, nil
}

// passkeys says whether there is a passkey to ask for. Every challenge says it
// too, before any proof; the page that is asked here is closed again, so that it
// costs no open page one of its challenges.
func (c *Console) passkeys(w http.ResponseWriter, r *http.Request) {
	p, fail := c.newPage(r)
	var ch wire.Challenge
	if fail == nil {
		defer p.Close()
		ch, fail = ask[wire.Challenge](p, wire.MethodVaultChallenge, wire.Empty{})
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	answer(w, http.StatusOK, map[string]any{"any": ch.Passkeys != nil && ch.Passkeys.Any})
}

// openByPasskey opens the page that was given the challenge.
func (c *Console) openByPasskey(w http.ResponseWriter, r *http.Request, g gesture) {
	o := c.find(r)
	if o == nil {
		refuse(w, wire.NewError(wire.CodeProofRequired))
		return
	}
	_, fail := o.page.Ask(wire.MethodActivityRead, wire.Managed{Request: readingRequest, Proof: &wire.Proof{Nonce: g.Nonce, Assertion: g.Assertion}})
	if fail != nil {
		refuse(w, fail)
		return
	}
	c.mu.Lock()
	o.since = time.Now()
	c.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{"token": bearer(r), "told": []string{}})
}

// beginPasskey gives the challenge that a new passkey answers.
func (c *Console) beginPasskey(w http.ResponseWriter, r *http.Request, o *opened) {
	var in wire.PasskeyName
	fail := read(r, &in)
	var ch wire.Challenge
	if fail == nil {
		ch, fail = ask[wire.Challenge](o.page, wire.MethodVaultChallenge, wire.Empty{})
	}
	if fail == nil && ch.Passkeys == nil {
		fail = wire.NewError(wire.CodeLocked)
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	answer(w, http.StatusOK, asked{Nonce: ch.Nonce, RelyingParty: ch.Passkeys.RelyingParty, IDs: ch.Passkeys.IDs,
		Challenge: base64.RawURLEncoding.EncodeToString(approval.Challenge(approval.EnrolMessage(in.Name, ch.Nonce)))})
}

// addPasskey lets a new passkey prove, by the passphrase over exactly what the
// browser handed over.
func (c *Console) addPasskey(w http.ResponseWriter, r *http.Request, o *opened) {
	var in struct {
		Add    wire.PasskeyAdd `json:"add"`
		Nonce  string          `json:"nonce"`
		Phrase phrase          `json:"phrase"`
	}
	defer func() { clear(in.Phrase) }()
	fail := read(r, &in)
	var keys Keys
	if fail == nil {
		keys, fail = o.page.Derive(in.Phrase)
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	defer keys.Wipe()
	raw, err := json.Marshal(in.Add)
	if err != nil {
		refuse(w, wire.NewError(wire.CodeInternal))
		return
	}
	mac := keys.Sign(approval.ProofMessage(wire.MethodPasskeyAdd, raw, in.Nonce))
	_, fail = o.page.Ask(wire.MethodPasskeyAdd, wire.Managed{Request: raw, Proof: &wire.Proof{Nonce: in.Nonce, MAC: mac}})
	done(w, fail)
}

func (c *Console) removePasskey(w http.ResponseWriter, r *http.Request, o *opened) {
	var in struct {
		Name   string `json:"name"`
		Phrase phrase `json:"phrase"`
	}
	defer func() { clear(in.Phrase) }()
	fail := read(r, &in)
	var keys Keys
	if fail == nil {
		keys, fail = o.page.Derive(in.Phrase)
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	defer keys.Wipe()
	done(w, prove(o.page, keys, wire.MethodPasskeyRemove, wire.PasskeyName{Name: in.Name}))
}
