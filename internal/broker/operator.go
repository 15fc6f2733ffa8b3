package broker

import (
	"context"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/wire"
)

// operator is whoever asks for something of management: the process on a
// channel, or a page of the console. Each has nonces of its own, and its own end
// of what a proof opened: a proof that one of them gave is of no use to another.
type operator struct {
	b   *Broker
	who asker

	proving sync.Mutex
	nonces  map[string]time.Duration // open challenges → their end, since boot
	reading time.Duration            // until when this one may read, since boot
	clicks  time.Duration            // until when a page may decide by a click, since boot
	work    context.Context          // of what a proof started here; nil: nothing yet
	endWork context.CancelCauseFunc

	showing sync.Mutex
	shown   string // the body of which a row says that it is read here
}

// asker is who an operator is, by what the system establishes about it.
type asker interface {
	// name is its id in rows.
	name() string
	// recheck proves again that it is who it was, or says why not.
	recheck() *wire.Error
	evidence() action.Caller
	// processKey names its process: whose tries of a proof take turns.
	processKey() string
	// gone is closed when nobody waits for its answers any more.
	gone() <-chan struct{}
	// kinship is what it has in common with a process.
	kinship(agent *peer.Process) (action.Kinship, error)
}

func newOperator(b *Broker, who asker) *operator {
	return &operator{b: b, who: who, nonces: map[string]time.Duration{}}
}

// everyOperator returns whoever may have given a proof.
func (b *Broker) everyOperator() []*operator {
	var all []*operator
	for _, ch := range b.everyChannel() {
		all = append(all, ch.operator)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.pages {
		all = append(all, p.operator)
	}
	return all
}

func (ch *channel) name() string { return ch.id.ID }

func (ch *channel) gone() <-chan struct{} { return ch.closed }

// processKey names the process on the channel.
func (ch *channel) processKey() string {
	return subjectKey(action.Caller{Peer: ch.peer.Evidence()})
}

func (ch *channel) kinship(agent *peer.Process) (action.Kinship, error) {
	return peer.Kinship(ch.peer, agent)
}
