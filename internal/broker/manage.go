package broker

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

func newNonce() string { return action.NewID("p_") }

// manage answers a management request. It takes the same evidence as any other
// request; what widens needs the person's proof, what narrows never does.
func (o *operator) manage(method string, m wire.Managed) (any, *wire.Error) {
	if fail := o.who.recheck(); fail != nil {
		return nil, fail
	}
	switch method {
	case wire.MethodBrokerStatus:
		return o.b.status(), nil
	case wire.MethodVaultChallenge:
		return o.challenge()
	case wire.MethodBrokerStop:
		return o.stopBroker()
	case wire.MethodVaultUnlock:
		return managed(m, o.unlock)
	case wire.MethodVaultLock:
		return o.lock()
	case wire.MethodVaultPause:
		o.b.Pause(PausedAsked)
		return wire.Empty{}, nil
	case wire.MethodSessionRevoke:
		return managed(m, o.revoke)
	case wire.MethodApprovalDeny:
		return managed(m, o.denyCard)
	case wire.MethodApprovalApprove:
		return managed(m, func(r wire.Approve) (any, *wire.Error) { return o.approve(r, m.Proof) })
	case wire.MethodApproveAll:
		return managed(m, func(r wire.ApproveAll) (any, *wire.Error) { return o.approveAll(r, m.Proof) })
	case wire.MethodPasskeyList:
		return o.listPasskeys()
	case wire.MethodSecretList:
		return o.listSecrets()
	case wire.MethodApprovalList:
		return managed(m, o.listCards)
	case wire.MethodApprovalWait:
		return managed(m, o.waitCards)
	case wire.MethodSessionList:
		return o.listSessions()
	case wire.MethodSessionPaused:
		return o.b.listPaused(), nil
	case wire.MethodLedgerFound:
		return o.showQuarantine()
	case wire.MethodOperationShow:
		return managed(m, o.showOperation)
	case wire.MethodOperationShowBody:
		return managed(m, o.showBody)
	case wire.MethodActivityList:
		return managed(m, o.listActivity)
	case wire.MethodAccessShow:
		return o.showAccess()
	case wire.MethodAccessTest:
		return managed(m, o.testAccess)
	case wire.MethodAccessApply:
		return managed(m, func(r wire.AccessApply) (any, *wire.Error) { return o.apply(r, m) })
	}
	return o.manageProven(method, m)
}

// manageProven has the methods that always need a proof.
func (o *operator) manageProven(method string, m wire.Managed) (any, *wire.Error) {
	var work func() (any, *wire.Error)
	switch method {
	case wire.MethodActivityRead:
		work = o.readActivity
	case wire.MethodAccessText:
		work = o.accessText
	case wire.MethodSecretSet, wire.MethodSecretRotate:
		work = func() (any, *wire.Error) {
			return managed(m, func(r wire.SecretSet) (any, *wire.Error) { return o.setSecret(r, method == wire.MethodSecretRotate) })
		}
	case wire.MethodKeyGenerate:
		work = func() (any, *wire.Error) { return managed(m, o.generateKey) }
	case wire.MethodKeyPublic:
		work = func() (any, *wire.Error) { return managed(m, o.publicKey) }
	case wire.MethodHostKeys:
		work = func() (any, *wire.Error) { return managed(m, o.hostKeys) }
	case wire.MethodVaultSetSlot:
		work = func() (any, *wire.Error) { return managed(m, o.setSlot) }
	case wire.MethodKeychainSet:
		work = func() (any, *wire.Error) { return managed(m, o.setKeychain) }
	case wire.MethodKeychainRemove:
		work = o.removeKeychain
	case wire.MethodVaultBackup:
		work = func() (any, *wire.Error) { return managed(m, o.backup) }
	case wire.MethodLedgerExport:
		work = func() (any, *wire.Error) { return managed(m, o.export) }
	case wire.MethodLedgerAccept:
		work = func() (any, *wire.Error) { return managed(m, o.acknowledge) }
	case wire.MethodOperationSettle:
		work = func() (any, *wire.Error) { return managed(m, o.resolveOperation) }
	case wire.MethodSecretRemove:
		work = func() (any, *wire.Error) { return managed(m, o.removeSecret) }
	case wire.MethodPasskeyAdd:
		work = func() (any, *wire.Error) {
			return managed(m, func(r wire.PasskeyAdd) (any, *wire.Error) { return o.addPasskey(r, m.Proof.Nonce) })
		}
	case wire.MethodTouchIDAdd:
		work = func() (any, *wire.Error) {
			return managed(m, func(r wire.TouchIDAdd) (any, *wire.Error) { return o.addTouchID(r, m.Proof.Nonce) })
		}
	case wire.MethodPasskeyRemove:
		work = func() (any, *wire.Error) { return managed(m, o.removePasskey) }
	case wire.MethodApprovalClick:
		work = o.openClicks
	default:
		return nil, wire.Errorf(wire.CodeBadRequest, "There is no such method.")
	}
	if fail := o.checkProof(method, m); fail != nil {
		return nil, fail
	}
	return work()
}

// managed decodes the inner request of a management method.
func managed[R any](m wire.Managed, work func(R) (any, *wire.Error)) (any, *wire.Error) {
	var r R
	if err := wire.DecodeParams(m.Request, &r); err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "%s", err.Message)
	}
	return work(r)
}

func (b *Broker) status() wire.Status {
	st := wire.Status{State: "ready", BrokerVersion: b.Version, BrokerInstance: b.instance, Endpoint: b.Location.Socket,
		Profile: Profile, Home: b.Location.Home, Pending: b.queue.Len()}
	st.Sessions, st.Paused = b.sessions.Live()
	st.UpdateWaiting = b.updateWaiting()
	st.Console, st.ConsoleProblem = b.console()
	if b.state() == nil {
		st.State = "locked"
	}
	st.Ledger = "ok"
	if err := b.Ledger.Healthy(); errors.Is(err, ledger.ErrTampered) {
		st.Ledger = "was changed by another program: nothing is executed; look at: yett audit verify --rows, then yett audit acknowledge"
		if st.State == "ready" {
			st.State = wire.CodeQuarantined
		}
	} else if err != nil {
		st.Ledger = "cannot be written: nothing is executed until it can"
		if cause := ledger.Cause(err); cause != "" {
			st.Ledger = "cannot be written (" + cause + "): nothing is executed until it can"
		}
	}
	return st
}

// row records a management act, with the evidence of who did it.
func (o *operator) row(kind string, request, outcome map[string]any) *wire.Error {
	r := o.managementRow(kind, request, outcome)
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	if _, err := o.b.Ledger.Append(ctx, r); err != nil {
		return o.b.ledgerFailed(err)
	}
	return nil
}

func (o *operator) managementRow(kind string, request, outcome map[string]any) ledger.Row {
	c := o.who.evidence()
	r := ledger.Row{Kind: kind, Verified: marshal(map[string]any{"channel_id": o.who.name(), "role": c.Role,
		"peer": verifiedProcess(c.Peer)}), Claimed: marshal(c.Claims), Request: marshal(request)}
	if outcome != nil {
		r.Outcome = marshal(outcome)
	}
	return r
}

// narrow records an act that takes away. It is done even when it cannot be
// recorded: refusing to narrow would be the unsafe side.
func (o *operator) narrow(kind string, request map[string]any) {
	if fail := o.row(kind, request, nil); fail != nil {
		o.b.Log.Error("an act that narrows could not be recorded", "act", kind)
	}
}

func (o *operator) stopBroker() (any, *wire.Error) {
	o.narrow("broker.stopped", nil)
	time.AfterFunc(20*time.Millisecond, o.b.requestStop) // after the answer has gone out
	return wire.Empty{}, nil
}

// revoke ends the sessions that are named, all of them before any is recorded.
// Whoever asks has shown no proof, so the answer is only how many there were.
func (o *operator) revoke(r wire.Revoke) (any, *wire.Error) {
	if r.SessionID != "" {
		s, ok := o.b.sessions.Get(r.SessionID)
		if !ok {
			return nil, wire.Errorf(wire.CodeBadRequest, "There is no such session.").
				Then("List them: yett sessions.")
		}
		return o.endAndRecord([]*session.Session{s})
	}
	if r.PID == 0 && !r.All {
		return nil, wire.Errorf(wire.CodeBadRequest, "session_id, pid or all is missing.")
	}
	return o.endAndRecord(slices.DeleteFunc(o.b.sessions.All(), func(s *session.Session) bool {
		return !r.All && s.Caller.Subject().Kernel.PID != r.PID && s.Caller.Peer.Kernel.PID != r.PID
	}))
}

func (o *operator) endAndRecord(named []*session.Session) (any, *wire.Error) {
	live := slices.DeleteFunc(named, func(s *session.Session) bool { return s.State() == session.Ended })
	for _, s := range live {
		o.b.endSession(s, session.Revoked)
	}
	for _, s := range live {
		o.narrow("session.revoked", map[string]any{"session_id": s.ID})
	}
	return wire.Revoked{Sessions: len(live)}, nil
}

// listSessions lists the sessions of this instance: after a proof all of them,
// else those of the asking process.
func (o *operator) listSessions() (any, *wire.Error) {
	own, all := subjectKey(o.who.evidence()), o.mayRead()
	r := wire.List[wire.Session]{Items: []wire.Session{}}
	for _, s := range o.b.sessions.All() {
		if !all && subjectKey(s.Caller) != own {
			r.Hidden++
			continue
		}
		st := s.Status()
		r.Items = append(r.Items, wire.Session{SessionID: s.ID, State: string(st.State), EndReason: st.EndReason,
			ChannelID: s.ChannelID, Unit: s.Caller.Unit, Caller: brief(s.Caller), Capabilities: st.Capabilities,
			BeganAt: s.BeganAt, ExpiresAt: st.ExpiresAt, Grants: grantsOf(s, st.Capabilities)})
	}
	return newest(r), nil
}

// grantsOf are the grants of capabilities, also while the session is paused. One
// that was used up since the capabilities were listed is left out.
func grantsOf(s *session.Session, capabilities []string) []wire.Granted {
	all := []wire.Granted{}
	for _, c := range capabilities {
		if g, _ := s.Granted(c); !g.Until.IsZero() {
			all = append(all, wire.Granted{Capability: c, Until: g.Until, Once: g.Once})
		}
	}
	return all
}

// maxListBytes keeps a list within one frame; what is older is in the ledger.
const maxListBytes = wire.MaxFrame * 3 / 4

// newest keeps the newest items that fit. Live sessions are kept before ended
// ones, so that nobody can push what can still be revoked off the list.
func newest(l wire.List[wire.Session]) wire.List[wire.Session] {
	keep, size := make([]bool, len(l.Items)), 0
	for _, live := range []bool{true, false} {
		for i := len(l.Items) - 1; i >= 0; i-- {
			if (l.Items[i].State != string(session.Ended)) != live {
				continue
			}
			if size += len(marshal(l.Items[i])) + 1; size > maxListBytes {
				break
			}
			keep[i] = true
		}
	}
	kept := wire.List[wire.Session]{Items: []wire.Session{}, Hidden: l.Hidden}
	for i, s := range l.Items {
		if keep[i] {
			kept.Items = append(kept.Items, s)
		} else {
			kept.Hidden++
		}
	}
	return kept
}

// brief bounds what a caller says of itself in a list: the ledger has it all.
func brief(c action.Caller) action.Caller {
	c.Claims.Program, c.Claims.Version = approval.Escape(c.Claims.Program, 100), approval.Escape(c.Claims.Version, 100)
	labels := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Claims.Labels)) {
		if len(labels) == 16 {
			break
		}
		labels[approval.Escape(name, 64)] = approval.Escape(c.Claims.Labels[name], 100)
	}
	c.Claims.Labels = labels
	return c
}

// readActivity opens reading on this channel.
func (o *operator) readActivity() (any, *wire.Error) {
	if fail := o.row("reading.opened", nil, nil); fail != nil {
		return nil, fail
	}
	o.openReading()
	return wire.Empty{}, nil
}

// maxActivityBytes keeps a page of activity within one frame.
const maxActivityBytes = 512 << 10

// listActivity reads a page of rows: after a proof all, else those of sessions
// of the asking process.
func (o *operator) listActivity(r wire.ActivityList) (any, *wire.Error) {
	open := o.b.state()
	l := wire.List[json.RawMessage]{Items: []json.RawMessage{}}
	if open == nil {
		n, err := o.b.Ledger.Entries()
		if err != nil {
			return nil, o.b.ledgerFailed(err)
		}
		l.Hidden = int(n)
		return l, nil
	}
	own, all := subjectKey(o.who.evidence()), o.mayRead()
	size, limit := 0, min(max(r.Limit, 1), 1000)
	if r.Newest {
		n, err := o.b.Ledger.Entries()
		if err != nil {
			return nil, o.b.ledgerFailed(err)
		}
		if r.From <= 0 || r.From > n {
			r.From = n + 1
		}
		limit = int(min(int64(limit), r.From-1))
		r.From -= int64(limit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	err := o.b.Ledger.Rows(ctx, open.opener, r.From, func(row ledger.Row) error {
		if !all {
			s, ok := o.b.sessions.Get(row.SessionID)
			if !ok || subjectKey(s.Caller) != own {
				l.Hidden++
				return nil
			}
		}
		raw := marshal(row)
		if len(raw) > maxActivityBytes { // what it says about itself stays; its content is in the ledger
			row.Request = marshal(map[string]any{"omitted": "the row is too long for a list", "bytes": len(raw)})
			raw = marshal(row)
		}
		if size += len(raw); len(l.Items) >= limit || (size > maxActivityBytes && len(l.Items) > 0) {
			return errEnough
		}
		l.Items = append(l.Items, raw)
		return nil
	})
	if err != nil && err != errEnough {
		return nil, o.b.ledgerFailed(err)
	}
	return l, nil
}
