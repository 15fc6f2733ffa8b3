package broker

import (
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/session"
)

// maxKin bounds how many agents one decision is compared with.
const maxKin = 256

// approver says what the process that decides a card has in common with the
// card's agent, and with how many other live agents it has anything in common.
// It is a fact for the record and judges nothing: see action.Kinship.
func (o *operator) approver(i *approval.Item) map[string]any {
	out := map[string]any{"kinship": "unknown: the agent has gone", "shares_terminal_with_agent": false}
	compared, kin := 0, 0
	for s, other := range o.b.agents() {
		own := s.ID == i.SessionID
		if compared++; !own && compared > maxKin {
			out["kin_incomplete"] = true
			continue
		}
		k, err := o.who.kinship(other.subject())
		switch {
		case own && err != nil:
			out["kinship"] = "unknown: " + err.Error()
		case own:
			out["kinship"], out["shares_terminal_with_agent"] = k, k.Terminal != ""
		case err == nil && k.Shared():
			kin++
		}
	}
	if kin > 0 {
		out["kin_of_other_agents"] = kin
	}
	return out
}

// agents returns the channels of the sessions that have not ended.
func (b *Broker) agents() map[*session.Session]*channel {
	live := map[*session.Session]*channel{}
	for _, ch := range b.everyChannel() {
		if s := ch.id.Session(); s != nil && s.EndReason() == "" {
			live[s] = ch
		}
	}
	return live
}

// subject is the process that an authorization of the channel names.
func (ch *channel) subject() *peer.Process {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.agent != nil {
		return ch.agent
	}
	return ch.peer
}

// chain is what led to the channel's agent, for its card.
func (ch *channel) chain() (chain []approval.Ancestor, cut bool) {
	all, cut, err := ch.subject().Ancestors()
	if err != nil {
		return []approval.Ancestor{}, true
	}
	chain = make([]approval.Ancestor, len(all))
	for i, a := range all {
		chain[i] = approval.Ancestor{Kernel: a}
	}
	return chain, cut
}

// otherSessions counts the live sessions of a caller's process besides one.
func (b *Broker) otherSessions(c action.Caller, except string) int {
	n, own := 0, subjectKey(c)
	for _, s := range b.sessions.All() {
		if s.ID != except && s.EndReason() == "" && subjectKey(s.Caller) == own {
			n++
		}
	}
	return n
}
