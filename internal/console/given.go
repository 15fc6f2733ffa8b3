package console

import (
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// decided is what became of one card. Until is when what was given ends; a card
// that was refused may wait on.
type decided struct {
	ApprovalID string    `json:"approval_id"`
	Done       bool      `json:"done"`
	Until      time.Time `json:"until,omitzero"`
	Waits      bool      `json:"waits,omitempty"`
	Message    string    `json:"message,omitempty"`
}

// decidedOf says what became of a card by the broker's answer about it.
func decidedOf(p Page, id string, fail *wire.Error) decided {
	if fail == nil {
		return decided{ApprovalID: id, Done: true}
	}
	_, waits := waitingCard(p, id)
	return decided{ApprovalID: id, Waits: waits, Message: fail.Message}
}

func waitingCard(p Page, id string) (wire.Approval, bool) {
	l, fail := ask[wire.List[wire.Approval]](p, wire.MethodApprovalList, wire.ApprovalList{ApprovalID: id})
	if fail != nil || len(l.Items) != 1 {
		return wire.Approval{}, false
	}
	return l.Items[0], true
}

// ends are the ends of what is given until a time. A session that ends earlier
// ends its grants too, so they are read from the sessions and not from what was
// asked for.
type ends struct {
	until time.Time
	cards map[string]wire.Approval // as they waited before the decision
}

func endsOf(p Page, all wire.ApproveAll) ends {
	e := ends{until: all.Until, cards: map[string]wire.Approval{}}
	if all.Choice != approval.ChoiceUntil {
		return e
	}
	for _, c := range all.Cards {
		if a, waits := waitingCard(p, c.ApprovalID); waits {
			e.cards[c.ApprovalID] = a
		}
	}
	return e
}

// fill notes the ends of the cards that were allowed.
func (e ends) fill(p Page, results []decided) {
	if e.until.IsZero() {
		return
	}
	sessions, fail := ask[wire.List[wire.Session]](p, wire.MethodSessionList, wire.Empty{})
	if fail != nil {
		sessions.Items = nil
	}
	for i, d := range results {
		if d.Done {
			results[i].Until = e.of(e.cards[d.ApprovalID], sessions.Items)
		}
	}
}

func (e ends) of(card wire.Approval, sessions []wire.Session) time.Time {
	until := e.until
	for _, s := range sessions {
		for _, g := range s.Grants {
			if s.SessionID == card.SessionID && slices.Contains(card.Capabilities, g.Capability) && g.Until.Before(until) {
				until = g.Until
			}
		}
	}
	return until
}
