package broker

import (
	"context"
	"time"

	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// Reasons for which sessions are paused.
const (
	PausedAsked   = "asked"   // yett lock --pause
	PausedIdle    = "idle"    // nothing used the vault for Config.LockAfter
	PausedSuspend = "suspend" // the machine goes to sleep
	PausedScreen  = "screen"  // the screen was locked
)

// Pause locks Yett: the vault is closed, and sessions are paused
// rather than ended. It returns when nothing more is sent and no key is held,
// and does nothing while locked. Whoever learns that the machine is about to
// sleep calls it with PausedSuspend, before it sleeps.
func (b *Broker) Pause(reason string) {
	b.turning.Lock()
	defer b.turning.Unlock()
	if !b.closeVault() {
		return
	}
	paused := []string{}
	for _, ch := range b.everyChannel() {
		if s := ch.id.Session(); s != nil && s.Pause() {
			paused = append(paused, s.ID)
			row := sessionRow("session.paused", s)
			row.Outcome = marshal(map[string]any{"reason": reason})
			b.Ledger.AppendSoon(row)
		}
	}
	b.Log.Info("locked, sessions are paused", "reason", reason, "paused", len(paused))
	// Locking narrows: it is done although it may not be recorded. The wait is
	// short, since a machine that goes to sleep does not wait longer.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	row := ledger.Row{Kind: "vault.locked", Request: marshal(map[string]any{"reason": reason}),
		Outcome: marshal(map[string]any{"paused": paused})}
	if _, err := b.Ledger.Append(ctx, row); err != nil {
		b.Log.Error("locking could not be recorded", "error", err)
	}
}

// closeVault forgets the keys, and reports whether there were any. From here on
// no action begins; what was begun learns it from its session.
func (b *Broker) closeVault() bool {
	b.mu.Lock()
	open := b.open
	b.open = nil
	b.mu.Unlock()
	if open != nil {
		b.leaveHead(open)
		b.tokens.close()
		open.log.Wipe()
	}
	b.Vault.Lock()
	b.Bodies.Lock()
	for _, o := range b.everyOperator() {
		o.forgetProofs() // what they opened does not outlive an open vault
	}
	b.SSH.CloseKept()
	returnMemory()
	return open != nil
}

// resumePaused lets those paused sessions go on whose process, channel and end
// still stand, and ends the others. The person has just given the proof, and
// the row of the unlocking is written. The caller holds turning.
func (b *Broker) resumePaused() wire.Unlocked {
	u := wire.Unlocked{Resumed: []wire.Resumed{}, Ended: []wire.Resumed{}}
	for _, ch := range b.everyChannel() {
		s := ch.id.Session()
		if s == nil || s.State() != session.Paused {
			continue
		}
		st, k := s.Status(), s.Caller.Subject().Kernel
		r := wire.Resumed{SessionID: s.ID, Program: k.ExePath, PID: k.PID, Capabilities: st.Capabilities, ExpiresAt: st.ExpiresAt}
		if ch.resume(s) {
			u.Resumed = append(u.Resumed, r)
			continue
		}
		r.EndReason = s.EndReason()
		u.Ended = append(u.Ended, r)
	}
	return u
}

// resume looks at one paused session again. Going on widens: it is recorded
// first, and a session that cannot be recorded ends.
func (ch *channel) resume(s *session.Session) bool {
	b := ch.b
	if why := s.Due(); why != "" {
		b.endSession(s, why)
		return false
	}
	if fail := ch.recheck(); fail != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	if _, err := b.Ledger.Append(ctx, sessionRow("session.resumed", s)); err != nil {
		b.Log.Error("resuming a session could not be recorded", "error", err)
		b.endSession(s, session.Locked)
		return false
	}
	if !s.Resume() { // it ended while it was looked at
		if why := s.Due(); why != "" {
			b.endSession(s, why)
		}
		return false
	}
	return true
}

// listPaused lists what an unlocking would resume. Without a proof nobody reads
// who the others are: ids, ends and the names of capabilities, as for cards.
func (b *Broker) listPaused() wire.List[wire.Resumed] {
	l := wire.List[wire.Resumed]{Items: []wire.Resumed{}}
	for _, ch := range b.everyChannel() {
		if s := ch.id.Session(); s != nil && s.State() == session.Paused {
			st := s.Status()
			l.Items = append(l.Items, wire.Resumed{SessionID: s.ID, Capabilities: st.Capabilities, ExpiresAt: st.ExpiresAt})
		}
	}
	return l
}

// use marks the vault as being used until the returned function is called.
func (b *Broker) use() (done func()) {
	b.using.Add(1)
	return func() {
		b.used.Store(int64(b.Clock.SinceBoot()))
		b.using.Add(-1)
	}
}

// unusedTooLong reports whether the vault must lock by itself. It is asked at
// every use, and by a timer for when there is none.
func (b *Broker) unusedTooLong() bool {
	return b.LockAfter > 0 && b.using.Load() == 0 && b.Clock.SinceBoot()-time.Duration(b.used.Load()) >= b.LockAfter
}
