package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

// A list of cards stays within one frame. Of each card there is a line as long
// as lines fit; cards stand with the first lines, and ids alone with the last.
// So whoever lists can ask for every card that waits, one by one.
const (
	maxCardBytes = wire.MaxFrame * 3 / 4
	maxLineBytes = maxCardBytes / 2
	idBytes      = len(`"a_9TVFK1BRYQ3BQFSBKDRSE4SFCMTHQJV1",`)
)

// listCards lists the cards that wait, or the one that is asked for. Without a
// proof there are ids, times and names of capabilities, but no digest and no
// card, so nothing that could be approved from it.
func (o *operator) listCards(r wire.ApprovalList) (any, *wire.Error) {
	l := wire.List[wire.Approval]{Items: []wire.Approval{}}
	items := o.b.queue.List()
	items = items[min(max(r.Offset, 0), len(items)):]
	if r.ApprovalID != "" {
		items = slices.DeleteFunc(items, func(i *approval.Item) bool { return i.ID() != r.ApprovalID })
	}
	all, size := o.mayRead(), 0
	for n, i := range items {
		a := wire.Approval{ApprovalID: i.ID(), Capabilities: i.Capabilities, AskedAt: i.AskedAt, ExpiresAt: i.Card.ExpiresAt}
		if all {
			a.SessionID, a.Asked = i.SessionID, i.Asked()
		}
		line := len(marshal(a))
		if n > 0 && size+line+(len(items)-n)*idBytes > maxLineBytes {
			break
		}
		size += line
		l.Items = append(l.Items, a)
	}
	for _, i := range items[len(l.Items):] {
		if size += idBytes; size > maxCardBytes {
			break
		}
		l.Rest = append(l.Rest, i.ID())
	}
	l.More = len(items) - len(l.Items) - len(l.Rest)
	for n := 0; all && n < len(l.Items); n++ {
		if size += len(items[n].Document); size > maxCardBytes && n > 0 {
			break
		}
		l.Items[n].CardDigest, l.Items[n].Card = items[n].Digest, items[n].Document
	}
	return l, nil
}

// approve decides a card in favour. The proof is over the digest, the choice
// and its end, so none of them can be swapped.
func (o *operator) approve(r wire.Approve, p *wire.Proof) (any, *wire.Error) {
	card := wire.CardNamed{ApprovalID: r.ApprovalID, CardDigest: r.CardDigest}
	d, proven, fail := o.proveDecision(wire.ApproveAll{Cards: []wire.CardNamed{card}, Choice: r.Choice, Until: r.Until}, p)
	if fail != nil {
		return nil, fail
	}
	if _, fail := o.decide(r.ApprovalID, r.CardDigest, d, proven); fail != nil {
		return nil, fail
	}
	return wire.Empty{}, nil
}

// maxAtOnce bounds how many cards one proof decides.
const maxAtOnce = 100

// approveAll decides several cards in favour by one proof over all of their
// digests. A card that has gone meanwhile does not hold up the others.
func (o *operator) approveAll(r wire.ApproveAll, p *wire.Proof) (any, *wire.Error) {
	if len(r.Cards) == 0 || len(r.Cards) > maxAtOnce {
		return nil, wire.Errorf(wire.CodeBadRequest, "One proof decides 1 to %d cards.", maxAtOnce)
	}
	d, proven, fail := o.proveDecision(r, p)
	if fail != nil {
		return nil, fail
	}
	all := wire.ApprovedAll{}
	for _, c := range r.Cards {
		became := wire.CardDecided{ApprovalID: c.ApprovalID}
		var item *approval.Item
		if item, became.Error = o.decide(c.ApprovalID, c.CardDigest, d, proven); became.Error == nil {
			became.Until = o.b.givenUntil(item, d)
		} else {
			_, err := o.b.queue.Get(c.ApprovalID)
			became.Waits = err == nil
		}
		all.Cards = append(all.Cards, became)
	}
	return all, nil
}

// givenUntil is when what a decision gave ends: a session that ends earlier ends
// its grants too.
func (b *Broker) givenUntil(i *approval.Item, d approval.Decision) time.Time {
	until := d.Until
	s, ok := b.sessions.Get(i.SessionID)
	if !ok || d.Choice != approval.ChoiceUntil {
		return until
	}
	for _, c := range i.Capabilities {
		if g, _ := s.Granted(c); !g.Until.IsZero() && g.Until.Before(until) {
			until = g.Until
		}
	}
	return until
}

// proveDecision checks the proof of a yes: over the digests in their order, the
// choice and its end.
func (o *operator) proveDecision(r wire.ApproveAll, p *wire.Proof) (d approval.Decision, proven approval.Proven, fail *wire.Error) {
	if p == nil {
		return d, proven, wire.NewError(wire.CodeProofRequired)
	}
	digests := make([]string, len(r.Cards))
	for i, c := range r.Cards {
		digests[i] = c.CardDigest
	}
	message := approval.DecisionsMessage(digests, r.Choice, r.Until, p.Nonce)
	switch {
	case p.Click:
		proven, fail = o.checkClick(r.Cards, p)
	case p.Assertion != nil:
		proven, fail = o.checkPasskey(wire.MethodApprovalApprove, message, p)
	case p.TouchID != nil:
		proven, fail = o.checkTouchID(wire.MethodApprovalApprove, message, p)
	default:
		proven = approval.Proven{By: approval.ByPassphrase}
		fail = o.checkMAC(wire.MethodApprovalApprove, message, p)
	}
	if fail != nil {
		return d, proven, fail
	}
	if r.Choice != approval.ChoiceOnce && r.Choice != approval.ChoiceUntil || r.Choice == approval.ChoiceOnce && !r.Until.IsZero() {
		return d, proven, wire.Errorf(wire.CodeBadRequest, "choice must be once, or until with a time")
	}
	if proven.Signed() || len(digests) > 1 {
		proven.Cards = digests
	}
	return approval.Decision{Choice: r.Choice, Until: r.Until}, proven, nil
}

func (o *operator) denyCard(r wire.ApprovalID) (any, *wire.Error) {
	if _, fail := o.decide(r.ApprovalID, "", approval.Decision{Choice: approval.ChoiceDeny, Code: wire.ReasonDenied}, approval.Proven{}); fail != nil {
		return nil, fail
	}
	return wire.Empty{}, nil
}

// decide records a decision and then lets it take effect, in one step of the
// queue: nothing can happen between the two.
func (o *operator) decide(id, digest string, d approval.Decision, proven approval.Proven) (*approval.Item, *wire.Error) {
	item, err := o.b.queue.Get(id)
	if err == nil {
		approver := o.approver(item) // before the queue is held: it asks the kernel about every agent
		err = o.b.queue.Decide(id, digest, d, func(i *approval.Item) error {
			if fail := o.decisionRow(i, d, approver, proven); fail != nil && d.Choice != approval.ChoiceDeny {
				return fail
			}
			return nil
		})
	}
	var fail *wire.Error
	switch {
	case err == nil:
		return item, nil
	case errors.As(err, &fail):
		return nil, fail
	case errors.Is(err, approval.ErrDigest):
		e := wire.Errorf(wire.CodeProofInvalid, "The digest is not that of the card.")
		e.NextStep = "Look at the card that waits and take its digest: yett pending."
		return nil, e
	case errors.Is(err, approval.ErrUnknown):
		e := wire.Errorf(wire.CodeBadRequest, "No such card waits: it was decided, withdrawn, or never there.")
		e.NextStep = "List what waits: yett pending."
		return nil, e
	}
	return nil, wire.Errorf(wire.CodeBadRequest, "%s", sentence(err.Error()))
}

// decisionRow records a decision: who decided, how a yes was proven, what it
// gives, and the card as it was shown.
func (o *operator) decisionRow(i *approval.Item, d approval.Decision, approver map[string]any, proven approval.Proven) *wire.Error {
	c := o.who.evidence()
	verified := map[string]any{"channel_id": o.who.name(), "role": c.Role, "peer": verifiedProcess(c.Peer), "approver": approver}
	if d.Granted() {
		verified["proof"] = proven
	}
	row := ledger.Row{Kind: "decision", SessionID: i.SessionID, Claimed: marshal(c.Claims),
		Verified: marshal(verified),
		Request:  marshal(map[string]any{"approval_id": i.ID(), "card_digest": i.Digest, "card": string(i.Document)}),
		Outcome:  marshal(map[string]any{"choice": d.Choice})}
	if i.Card.Request != nil {
		row.OperationID = i.Card.Request.OperationID
	}
	if d.Granted() {
		granted := map[string]any{"capabilities": i.Capabilities, "unit": i.Card.Granting.Unit, "longest_end": i.Card.Granting.LongestEnd}
		if d.Choice == approval.ChoiceUntil {
			granted["until"] = d.Until
		}
		row.Granted = marshal(granted)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	if _, err := o.b.Ledger.Append(ctx, row); err != nil {
		return o.b.ledgerFailed(err)
	}
	return nil
}
