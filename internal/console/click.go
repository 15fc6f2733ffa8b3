package console

import (
	"net/http"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// clickRequest is the request whose proof lets a page decide by a click.
var clickRequest = []byte("{}")

// openClicks lets this page decide by a click for a while, by a proof.
func (c *Console) openClicks(w http.ResponseWriter, r *http.Request, o *opened) {
	var in gesture
	defer func() { in.wipe() }()
	fail := read(r, &in)
	var keys Keys
	var proof *wire.Proof
	if fail == nil {
		keys, proof, fail = in.prove(o.page, func(nonce string) []byte {
			return approval.ProofMessage(wire.MethodApprovalClick, clickRequest, nonce)
		})
	}
	if keys != nil {
		defer keys.Wipe()
	}
	var until wire.ClickUntil
	if fail == nil {
		until, fail = answered[wire.ClickUntil](o.page.Ask(wire.MethodApprovalClick, wire.Managed{Request: clickRequest, Proof: proof}))
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	answer(w, http.StatusOK, map[string]any{"minutes": int(time.Until(until.Until).Round(time.Minute).Minutes())})
}

// clicked is the proof of a decision by a click: a nonce of this page, so that
// what was sent once counts once.
func clicked(p Page) (*wire.Proof, *wire.Error) {
	c, fail := ask[wire.Challenge](p, wire.MethodVaultChallenge, wire.Empty{})
	return &wire.Proof{Nonce: c.Nonce, Click: true}, fail
}
