package broker

import (
	"errors"
	"strings"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// fileAccessCard puts the card for capabilities of a session into the queue.
// When the person said no a moment ago, there is no card and the reason is
// that no.
func (ch *channel) fileAccessCard(s *session.Session, p *access.Policy, wanted []string, purpose string, first bool) *wire.Error {
	b := ch.b
	if b.nobodyNotices() {
		ch.setCard(nil, wire.NewReason(wire.ReasonNoApprover, ""))
		s.Activate()
		return nil
	}
	g := approval.Granting{Unit: s.Caller.Unit, LongestEnd: s.Status().ExpiresAt}
	for _, name := range wanted {
		g.Capabilities = append(g.Capabilities, cardCapability(p, name))
	}
	subject := subjectKey(s.Caller)
	set := strings.Join(wanted, "\n")
	item, err := b.queue.File(approval.Proposal{
		Caller: subject, Equal: "access\n" + set, NoKey: subject + "\n" + set, SessionID: s.ID,
		Verified: ch.verifiedOf(s), Claimed: approval.ClaimedOf(s.Caller, purpose), Granting: g,
		Settled: func(d approval.Decision) { settleAccess(s, wanted, first, d) },
	})
	switch {
	case errors.Is(err, approval.ErrKeptNo):
		ch.setCard(nil, wire.NewReason(wire.ReasonDenied, ""))
		s.Activate()
		return nil
	case errors.Is(err, approval.ErrTooMany):
		return wire.Errorf(wire.CodeBusy, "Too many cards of this caller wait for a person.")
	case err != nil:
		b.Log.Error("filing a card", "error", err)
		return wire.NewError(wire.CodeInternal)
	}
	ch.setCard(item, nil)
	return nil
}

// settleAccess applies a decision to the session before anybody can see it.
func settleAccess(s *session.Session, wanted []string, first bool, d approval.Decision) {
	if d.Granted() {
		s.Grant(wanted, d.Until, d.Choice == approval.ChoiceOnce, first)
	}
	s.Activate()
}

// keepPurpose notes what an agent said that it wants capabilities for, so that
// the card of an action can repeat it.
func (ch *channel) keepPurpose(capabilities []string, purpose string) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, c := range capabilities {
		ch.purposes[c] = purpose
	}
}

// purposeOf is what was said when a capability was last asked for, or else when
// the session was opened.
func (ch *channel) purposeOf(capability string) string {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if said := ch.purposes[capability]; said != "" {
		return said
	}
	return ch.purposes[""]
}

// fileOperationCard puts the card for one action into the queue. When the
// queue takes none it returns the reason.
func (ch *channel) fileOperationCard(op *operation, note string) (*approval.Item, *action.Refusal) {
	b, s := ch.b, op.session
	open := b.state()
	if open == nil || b.nobodyNotices() {
		return nil, &action.Refusal{Code: wire.ReasonNoApprover}
	}
	digest := hexOf(op.record.Digest)
	item, err := b.queue.File(approval.Proposal{
		Caller: op.subject, Equal: "action\n" + digest + note, NoKey: op.subject + "\n" + digest, SessionID: s.ID,
		Verified: ch.verifiedOf(s), Claimed: approval.ClaimedOf(s.Caller, ch.purposeOf(op.request.Capability)),
		Granting: approval.Granting{Unit: action.UnitOperation, LongestEnd: s.Status().ExpiresAt, Note: note,
			Capabilities: []approval.Capability{cardCapability(open.policy, op.request.Capability)}},
		Request: approval.NewRequest(op.id, op.request),
	})
	switch {
	case errors.Is(err, approval.ErrKeptNo):
		return nil, &action.Refusal{Code: wire.ReasonDenied}
	case errors.Is(err, approval.ErrTooMany):
		return nil, &action.Refusal{Code: wire.ReasonNoApprover, Detail: "Too many cards of this caller wait."}
	case errors.Is(err, approval.ErrTooLong):
		return nil, &action.Refusal{Code: wire.ReasonOutsideCapability,
			Detail: "A person has to see this action whole, and it is too long for that."}
	case err != nil:
		b.Log.Error("filing a card", "error", err)
		return nil, &action.Refusal{Code: wire.ReasonNoApprover}
	}
	return item, nil
}

// cardCapability describes a known capability in the words of the access file.
func cardCapability(p *access.Policy, name string) approval.Capability {
	c, _ := p.Capability(name)
	v := approval.Capability{Name: c.Name, Methods: c.Methods, Paths: c.Paths, Query: c.Query, Commands: c.Commands}
	if v.PTY = c.PTY; c.Kind == action.KindCopy {
		v.Copy = &approval.Copying{Direction: c.Direction, Remote: c.Remote, Local: c.Local, MaxSize: c.MaxSizeText(), Overwrite: c.Overwrite}
	}
	if c.Budget != nil {
		v.Budget = c.Budget.String()
	}
	if c.Confirm == access.ConfirmEach {
		v.Confirm = c.Confirm
	}
	if c.Kind == action.KindHTTP {
		cred, _ := p.Credential(c.Credential)
		v.Target, v.Insecure = cred.Origin.String(), cred.Insecure
		return v
	}
	cardHost(p, c.Host, &v)
	return v
}

// verifiedOf is the verified part of a session's cards.
func (ch *channel) verifiedOf(s *session.Session) approval.Verified {
	v := approval.VerifiedOf(ch.id.ID, s.Caller)
	v.Profile, v.Limits = Profile, Limits
	v.Chain, v.ChainCut = ch.chain()
	v.OtherSessions = ch.b.otherSessions(s.Caller, s.ID)
	if ch.b.Location.Test {
		v.Home = ch.b.Location.Home
	}
	return v
}
