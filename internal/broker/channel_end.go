package broker

import (
	"io"
	"time"

	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/session"
)

const (
	// deathGrace is how long the end of a channel waits for the exit of its
	// processes: death wins over a closed channel.
	deathGrace = 50 * time.Millisecond
	// lingerTime and lingerBytes bound what is still taken from a peer after its
	// channel was refused. A socket that is closed before all was read would
	// cut the peer off in its write, and the answer might go unread.
	lingerTime  = 250 * time.Millisecond
	lingerBytes = 16 << 20
)

// watchPeer ends the channel when the process on it exits. The agent of a shim
// is watched from hello on.
func (ch *channel) watchPeer() {
	select {
	case <-ch.peer.Done():
		ch.ended()
	case <-ch.closed:
	}
}

// ended ends the channel after its socket or its peer. Only a session's end has
// a reason that is worth a wait.
func (ch *channel) ended() {
	if ch.id.Session() == nil {
		ch.close()
		return
	}
	ch.end(ch.endOfChannel())
}

func (ch *channel) watchAgent(agent *peer.Process) {
	select {
	case <-agent.Done():
		ch.end(session.AgentExited)
	case <-ch.closed:
	}
}

// endOfChannel names the reason for an end that began with the socket or the
// peer: the death of the agent before that of the shim before a mere close.
func (ch *channel) endOfChannel() string {
	ch.mu.Lock()
	agent := ch.agent
	ch.mu.Unlock()
	limit := time.NewTimer(deathGrace)
	defer limit.Stop()
	if agent == nil {
		select {
		case <-ch.peer.Done():
			return session.AgentExited
		case <-limit.C:
			return session.ChannelClosed
		}
	}
	select {
	case <-agent.Done():
		return session.AgentExited
	case <-limit.C:
	}
	if !ch.peer.Alive() {
		return session.ShimExited
	}
	return session.ChannelClosed
}

// hangUp is the end of a channel that was refused: nothing more is said, its
// session ends, and what the peer was about to write is taken and dropped.
func (ch *channel) hangUp() {
	ch.writing.Lock()
	ch.hungUp = true
	ch.conn.CloseWrite()
	ch.writing.Unlock()
	if ch.id.Session() != nil {
		ch.endSession(ch.endOfChannel())
	}
	ch.conn.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, ch.conn, lingerBytes)
}

// answerLast gives requests a moment whose peer may have closed no more than its
// own half of the socket, as a script does that has asked everything. Where there
// is a session, naming the reason of its end takes this moment already.
func (ch *channel) answerLast() {
	if len(ch.slot) == 0 || ch.id.Session() != nil {
		return
	}
	answered := make(chan struct{})
	go func() {
		ch.requests.Wait()
		close(answered)
	}()
	limit := time.NewTimer(deathGrace)
	defer limit.Stop()
	select {
	case <-answered:
	case <-ch.closed:
	case <-limit.C:
	}
}

// end ends the session for a reason and closes the channel.
func (ch *channel) end(reason string) {
	ch.endSession(reason)
	ch.close()
}

// close closes the socket once. The reader then ends on its own.
func (ch *channel) close() {
	ch.closing.Do(func() {
		close(ch.closed)
		ch.conn.Close()
		ch.forgetProofs()
	})
}
