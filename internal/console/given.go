package console

import (
	"time"

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

// allowed is what became of a card that was to be allowed.
func allowed(c wire.CardDecided) decided {
	d := decided{ApprovalID: c.ApprovalID, Done: c.Error == nil, Until: c.Until, Waits: c.Waits}
	if c.Error != nil {
		d.Message = c.Error.Message
	}
	return d
}

// denied is what became of a card that was to be denied. A no is refused where the
// card has gone, or where the page may ask for nothing any more.
func denied(id string, fail *wire.Error) decided {
	if fail == nil {
		return decided{ApprovalID: id, Done: true}
	}
	return decided{ApprovalID: id, Waits: fail.Code != wire.CodeBadRequest, Message: fail.Message}
}
