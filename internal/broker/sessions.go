package broker

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	// maxCapabilities bounds one request for access.
	maxCapabilities = 64
	// maxClaims bounds what a caller says of itself and of its purpose, in
	// bytes: a row has to fit a frame with all of it.
	maxClaims = 32 << 10
)

// openSession begins the one session of a channel. Without capabilities it is
// active at once and may only list and ask.
func (ch *channel) openSession(m wire.SessionOpen, malformed *wire.Error) (any, *wire.Error) {
	if fail := ch.recheck(); fail != nil {
		return nil, fail
	}
	if malformed != nil && m.Nonce == "" {
		return nil, malformed
	}
	if m.Nonce != ch.id.Nonce || ch.id.Session() != nil { // foreign, or used
		return nil, wire.NewError(wire.CodeWrongChannel)
	}
	open := ch.b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	if malformed != nil {
		return nil, malformed
	}
	wanted, fail := known(open.policy, m.Capabilities, m.Purpose)
	if fail != nil {
		return nil, fail
	}
	if !ch.id.TakeNonce(m.Nonce) {
		return nil, wire.NewError(wire.CodeWrongChannel)
	}
	caller := ch.evidence()
	state := session.Active
	if len(wanted) > 0 {
		state = session.Pending
	}
	s := ch.b.sessions.Make(ch.id, caller, state)
	if fail := ch.begin(s, open.policy, wanted, m.Purpose); fail != nil {
		ch.id.GiveBack()
		return nil, fail
	}
	return ch.sessionResult(s), nil
}

// begin records the session, files its card and makes it usable, in this order.
func (ch *channel) begin(s *session.Session, p *access.Policy, wanted []string, purpose string) *wire.Error {
	b := ch.b
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	row := sessionRow("session.opened", s)
	ch.verified, ch.claimed, ch.owner = briefPart(s), marshal(s.Caller.Claims), subjectKey(s.Caller)
	ch.keepPurpose(append([]string{""}, wanted...), purpose)
	row.Claimed = marshal(approval.ClaimedOf(s.Caller, purpose))
	row.Request = marshal(map[string]any{"capabilities": wanted})
	if _, err := b.Ledger.Append(ctx, row); err != nil {
		return b.ledgerFailed(err)
	}
	if len(wanted) > 0 {
		if fail := ch.fileAccessCard(s, p, wanted, purpose, true); fail != nil {
			return fail
		}
	}
	b.sessions.Insert(ch.id, s, ch.owner)
	if b.state() == nil { // locked meanwhile: this session was not there to be ended or paused
		b.endSession(s, session.Locked)
	}
	select {
	case <-ch.closed: // the channel ended meanwhile: nobody else would end this session
		b.endSession(s, session.ChannelClosed)
	default:
	}
	return nil
}

// requestAccess asks a person for more capabilities.
func (ch *channel) requestAccess(s *session.Session, m wire.AccessRequest) (any, *wire.Error) {
	open := ch.b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	wanted, fail := known(open.policy, m.Capabilities, m.Purpose)
	if fail != nil {
		return nil, fail
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(c string) bool {
		_, ok := s.Granted(c)
		return ok
	})
	if len(missing) == 0 {
		return ch.sessionResult(s), nil
	}
	ch.keepPurpose(missing, m.Purpose)
	if fail := ch.fileAccessCard(s, open.policy, missing, m.Purpose, false); fail != nil {
		return nil, fail
	}
	return ch.waitSession(s, wire.SessionWait{WaitMS: m.WaitMS})
}

func (ch *channel) setCard(item *approval.Item, reason *wire.Reason) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.card, ch.reason = item, reason
}

// awaitCard waits until the channel's card is decided, at most waitMS.
func (ch *channel) awaitCard(s *session.Session, waitMS int64) {
	ch.mu.Lock()
	item := ch.card
	ch.mu.Unlock()
	if item == nil || waitMS == 0 {
		return
	}
	limit := time.NewTimer(time.Duration(waitMS) * time.Millisecond)
	defer limit.Stop()
	select {
	case <-item.Done():
	case <-limit.C:
	case <-s.Work().Done():
	case <-ch.closed:
	}
}

func (ch *channel) waitSession(s *session.Session, m wire.SessionWait) (any, *wire.Error) {
	ch.awaitCard(s, m.WaitMS)
	if why := s.EndReason(); why != "" {
		return nil, wire.NewError(wire.CodeSessionEnded).With("end_reason", why)
	}
	if s.State() == session.Paused {
		return nil, wire.NewError(wire.CodeLocked)
	}
	return ch.sessionResult(s), nil
}

func (ch *channel) closeSession(s *session.Session, _ wire.Envelope) (any, *wire.Error) {
	ch.b.endSession(s, session.ChannelClosed)
	return wire.Empty{}, nil
}

func (ch *channel) sessionResult(s *session.Session) wire.SessionResult {
	ch.mu.Lock()
	card, reason := ch.card, ch.reason
	ch.mu.Unlock()
	var pending *wire.Pending
	if card != nil {
		if d := card.Decision(); d.Choice == "" {
			pending = ch.b.pendingOf(card)
		} else if !d.Granted() {
			reason = wire.NewReason(d.Code, "")
		}
	}
	st := s.Status() // after the decision: what it gave is in place before it can be seen
	return wire.SessionResult{SessionID: s.ID, State: string(st.State), Capabilities: st.Capabilities, ExpiresAt: st.ExpiresAt,
		Pending: pending, Reason: reason}
}

func (b *Broker) pendingOf(i *approval.Item) *wire.Pending {
	return &wire.Pending{ApprovalID: i.ID(), ExpiresAt: i.Card.ExpiresAt, Tag: i.Card.Tag, ConsoleURL: b.consoleURL(i)}
}

// listAccess says what may be asked for, and what is granted.
func (ch *channel) listAccess(s *session.Session, _ wire.Envelope) (any, *wire.Error) {
	open := ch.b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	r := listPolicy(open.policy)
	for i := range r.Capabilities {
		a := &r.Capabilities[i]
		if g, ok := s.Granted(a.Capability); ok {
			until := g.Until
			a.Granted, a.Until, a.Once = true, &until, g.Once
		}
	}
	return r, nil
}

// endSession ends the channel's session, if it has one.
func (ch *channel) endSession(reason string) {
	if s := ch.id.Session(); s != nil {
		ch.b.endSession(s, reason)
	}
}

// endSession ends a session once: authority first, then its cards, then the
// record. What it has under way and was not sent is not sent; what was sent is
// awaited for a moment and settles itself.
func (b *Broker) endSession(s *session.Session, reason string) {
	if !s.End(reason) {
		return
	}
	b.queue.Withdraw(s.ID, withdrawCode(reason))
	b.HTTP.CloseSession(s.ID)
	b.SSH.CloseSession(s.ID)
	row := sessionRow("session.ended", s)
	row.Outcome = marshal(map[string]any{"end_reason": reason})
	b.Ledger.AppendSoon(row)
}

// withdrawCode is the reason code of what was queued when a session ended.
func withdrawCode(endReason string) string {
	if endReason == session.BrokerStopped {
		return wire.ReasonBrokerRestarted
	}
	return wire.ReasonRevoked
}

// known returns the wanted capabilities sorted and without repetition, or what
// is wrong with them.
func known(p *access.Policy, wanted []string, purpose string) ([]string, *wire.Error) {
	if len(purpose) > maxClaims {
		return nil, wire.Errorf(wire.CodeBadRequest, "purpose is longer than %d bytes.", maxClaims)
	}
	if len(wanted) > maxCapabilities {
		return nil, wire.Errorf(wire.CodeBadRequest, "At most %d capabilities can be asked for at once.", maxCapabilities)
	}
	out := slices.Compact(slices.Sorted(slices.Values(wanted)))
	for _, name := range out {
		if _, ok := p.Capability(name); !ok {
			fail := wire.Errorf(wire.CodeBadRequest, "There is no capability %q.", approval.Escape(name, 100))
			_, fail.NextStep = wire.Advice(wire.ReasonCapabilityUnknown)
			return nil, fail
		}
	}
	return out, nil
}

func listPolicy(p *access.Policy) wire.AccessListResult {
	r := wire.AccessListResult{Capabilities: []wire.Access{}}
	for _, c := range p.Capabilities() {
		v := cardCapability(p, c.Name)
		r.Capabilities = append(r.Capabilities, wire.Access{Capability: c.Name, Kind: string(c.Kind), Target: v.Target,
			Methods: c.Methods, Paths: c.Paths, Query: c.Query, Commands: c.Commands, PTY: c.PTY, Env: v.Env, Direction: c.Direction, Remote: c.Remote,
			Local: c.Local, MaxSize: c.MaxSize, Overwrite: c.Overwrite, Budget: v.Budget, Confirm: c.Confirm})
	}
	return r
}

// subjectKey names the process that an authorization is about: boot and pidfs
// inode, or below kernel 6.9 pid and start time.
func subjectKey(c action.Caller) string {
	k := c.Subject().Kernel
	if k.PidfsInode != 0 {
		return fmt.Sprintf("%s:%d", k.BootID, k.PidfsInode)
	}
	return fmt.Sprintf("%s:%d.%d", k.BootID, k.PID, k.StartTicks)
}

// sessionRow is a row about a session, with its evidence.
func sessionRow(kind string, s *session.Session) ledger.Row {
	return ledger.Row{Kind: kind, SessionID: s.ID, Verified: verifiedPart(s), Claimed: marshal(approval.ClaimedOf(s.Caller, ""))}
}

// verifiedPart is the part of a row that says what the system established.
func verifiedPart(s *session.Session) json.RawMessage {
	return marshal(map[string]any{
		"channel_id": s.ChannelID, "unit": s.Caller.Unit, "role": s.Caller.Role, "words": s.Caller.Words,
		"peer": verifiedProcess(s.Caller.Peer), "agent": verifiedProcess(s.Caller.Subject()),
	})
}

// briefPart is the verified part of the rows of a session's operations: enough
// to name process and program. All of it is in the row that opened the session.
func briefPart(s *session.Session) json.RawMessage {
	p := s.Caller.Subject()
	k := p.Kernel
	return marshal(map[string]any{"channel_id": s.ChannelID, "unit": s.Caller.Unit, "agent": map[string]any{
		"pid": k.PID, "pidfs_inode": k.PidfsInode, "start_ticks": k.StartTicks, "boot_id": k.BootID, "uid": k.UID,
		"exe_path": k.ExePath, "exe_device": k.ExeDevice, "exe_inode": k.ExeInode, "exe_state": k.ExeState, "sha256": p.Filesystem.SHA256}})
}

func verifiedProcess(p action.Process) approval.Process {
	return approval.Process{Kernel: p.Kernel, Filesystem: p.Filesystem}
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }
