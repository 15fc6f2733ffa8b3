package yetttest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// only wants the upstream to have seen these requests and no other.
func (u *Upstream) only(t testing.TB, want ...string) {
	t.Helper()
	if seen := u.Seen(); strings.Join(seen, ", ") != strings.Join(want, ", ") {
		t.Errorf("the upstream saw %q, want %q", seen, want)
	}
}

// actionLine is a well-formed request for an action of somebody's session.
func actionLine(session string, sequence int64, path string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":66,"method":"action.request","params":{"session_id":%q,"sequence":%d,"capability":"http:demo.read","action":{"method":"GET","path":%q},"wait_ms":30000}}`,
		session, sequence, path)
}

// TestAttackExecOfTheSameFile: the process replaces its code by a fresh start
// of the same program, which goes on with the connection.
func TestAttackExecOfTheSameFile(t *testing.T) {
	b, up := demoBroker(t)
	p := newPuppet(t).greets(b)
	id, _ := p.granted(b, "http:demo.read")
	p.acts("/v1/own")
	p.do("exec", "/proc/self/exe")
	p.refused(wire.CodeSessionEnded, "act", "/v1/evil")
	b.changed(id, wire.CodeSessionEnded)
	up.only(t, "GET /v1/own")
}

// TestAttackParentExits: the process that was approved hands the connection to
// a child by fork and dies.
func TestAttackParentExits(t *testing.T) {
	b, up := demoBroker(t)
	p := newPuppet(t).greets(b)
	id, _ := p.granted(b, "http:demo.read")
	p.order("leave")
	if said, err := p.hear(); err != nil || said != "up" {
		t.Fatalf("the child says %q, %v", said, err)
	}
	<-p.exited
	b.ended(id, session.AgentExited)
	if line := p.do("act", "/v1/evil"); line != "closed" {
		t.Errorf("the child was answered: %s", line)
	}
	if why := b.endRow(id); why != session.AgentExited {
		t.Errorf("the ledger says %q", why)
	}
	up.only(t)
}

// TestAttackStolenConnection: a stranger of the account takes the connection
// out of the agent with pidfd_getfd and writes on it.
func TestAttackStolenConnection(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	conn, err := c.conn.File()
	must(t, err)
	defer conn.Close()
	thief := newPuppet(t)
	thief.do("steal", fmt.Sprint(syscall.Getpid()), fmt.Sprint(fdOf(t, conn)))
	thief.do("write", actionLine(c.Session.SessionID, c.seq+1, "/v1/evil"))
	if r, ok := c.Read(); ok && r.Code() != wire.CodeAttributionFailed {
		t.Errorf("%q %s", r.Code(), r.Result)
	}
	if r, ok := c.Read(); ok {
		t.Errorf("the channel is open: %+v", r)
	}
	b.changed(c.Session.SessionID, wire.CodeAttributionFailed)
	up.only(t)
}

// TestAttackReapedBeforeAccept: the process that connected is dead and reaped
// before the broker looks; somebody else holds the connection.
func TestAttackReapedBeforeAccept(t *testing.T) {
	b, up := demoBroker(t)
	before := len(b.Sessions())
	heir := newPuppet(t)
	at := heir.do("listen")
	freeze(t, b.PID())
	p := newPuppet(t)
	p.do("connect", b.Location().Socket)
	p.do("give", at)
	heir.do("receive")
	p.order("exit")
	<-p.exited // and so reaped
	must(t, syscall.Kill(b.PID(), syscall.SIGCONT))
	heir.refused(wire.CodeAttributionFailed, "hello", "native", "heir")
	if line := heir.do("read"); line != "closed" {
		t.Errorf("the channel is open: %s", line)
	}
	b.refusedRow(wire.CodeAttributionFailed, "cause")
	if n := len(b.Sessions()); n != before {
		t.Errorf("%d sessions more", n-before)
	}
	up.only(t)
}

// freeze stops a process and waits until it stands.
func freeze(t testing.TB, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		must(t, err)
		if _, after, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(after, "T") {
			return
		}
	}
	t.Fatalf("process %d does not stop", pid)
}

// TestAttackStolenSessionID: another process uses a live session's id, and an
// ended one's, with well-formed requests on its own channel.
func TestAttackStolenSessionID(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	thief := newPuppet(t).greets(b)
	thief.do("open")
	for _, method := range []string{wire.MethodActionRequest, wire.MethodOperationGet, wire.MethodSessionWait, wire.MethodSessionClose, wire.MethodAccessList} {
		more := map[string]string{wire.MethodActionRequest: `,"capability":"http:demo.read","action":{"method":"GET","path":"/v1/evil"}`,
			wire.MethodOperationGet: `,"operation_id":"op_x"`}[method]
		thief.do("send", fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":%q,"params":{"session_id":%q,"sequence":%d%s}}`, method, c.Session.SessionID, c.seq+1, more))
		thief.refused(wire.CodeWrongChannel, "read")
	}
	b.refusedRow(wire.CodeWrongChannel, c.Session.SessionID)
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/own"}) // its number was not used up
	c.Must(wire.MethodSessionClose, c.Next(nil), nil)
	thief.do("send", actionLine(c.Session.SessionID, c.seq+1, "/v1/evil"))
	if r := thief.refused(wire.CodeSessionEnded, "read"); r.Error.Data["end_reason"] != session.ChannelClosed {
		t.Errorf("it ended with %v", r.Error.Data)
	}
	up.only(t, "GET /v1/own")
}

// TestAttackGuessedSessionID: a process guesses ids near those that it was given
// itself. With ids that follow one another it would meet its neighbour's.
func TestAttackGuessedSessionID(t *testing.T) {
	b, up := demoBroker(t)
	guesser := newPuppet(t).greets(b)
	var mine struct{ Result wire.SessionResult }
	must(t, json.Unmarshal([]byte(guesser.do("open")), &mine))
	b.Granted("http:demo.read") // the neighbour
	own := mine.Result.SessionID
	tried := 0
	for distance := 1; distance <= 64; distance++ {
		for _, guess := range []string{neighbour(own, distance), neighbour(own, -distance)} {
			tried++
			guesser.do("send", actionLine(guess, 1, "/v1/evil"))
			guesser.refused(wire.CodeSessionUnknown, "read")
		}
	}
	if tried < 100 {
		t.Errorf("only %d guesses", tried)
	}
	b.refusedRow(wire.CodeSessionUnknown, "claimed_session")
	up.only(t)
}

// neighbour counts on from an id in its alphabet.
func neighbour(id string, distance int) string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	digits := []byte(id)
	for at := len(digits) - 1; distance != 0; at-- {
		sum := strings.IndexByte(alphabet, digits[at]) + distance
		digits[at] = alphabet[(sum%32+32)%32]
		distance = (sum - (sum%32+32)%32) / 32
	}
	return string(digits)
}

// TestAttackReplayedNonce: the nonce of a hello opens one session on its own
// channel and nothing anywhere else, used or not.
func TestAttackReplayedNonce(t *testing.T) {
	b, _ := demoBroker(t)
	fresh, used := b.Open(), b.Open()
	used.OpenSession()
	before := len(b.Sessions())
	for name, nonce := range map[string]string{"fresh": fresh.Hello.Nonce, "used": used.Hello.Nonce, "of nobody": "n_0"} {
		thief := newPuppet(t).greets(b)
		thief.do("send", fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"session.open","params":{"nonce":%q,"capabilities":[]}}`, nonce))
		var r Reply
		if line := thief.do("read"); json.Unmarshal([]byte(line), &r) != nil || r.Code() != wire.CodeWrongChannel {
			t.Errorf("%s: %s", name, line)
		}
	}
	b.refusedRow(wire.CodeWrongChannel)
	if n := len(b.Sessions()); n != before {
		t.Errorf("%d sessions more", n-before)
	}
	fresh.OpenSession() // nobody used it up
}

// TestAttackReplayedBytes: another process sends, on a connection of its own,
// every byte that a legitimate session sent: while it lives, and after its end.
func TestAttackReplayedBytes(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Dial()
	tape := &tape{Conn: c.conn.UnixConn}
	say := func(method string, params map[string]any, result any) {
		c.id++
		frame, err := wire.EncodeRequest(c.id, method, params)
		must(t, err)
		_, err = tape.Write(frame)
		must(t, err)
		r, ok := c.Read()
		if !ok || r.Error != nil {
			t.Fatalf("%s: %+v", method, r.Error)
		}
		if result != nil {
			must(t, json.Unmarshal(r.Result, result))
		}
	}
	say(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": "test", "version": "0", "role": "native"}, &c.Hello)
	say(wire.MethodSessionOpen, map[string]any{"nonce": c.Hello.Nonce, "capabilities": []string{"http:demo.read"}}, &c.Session)
	b.Approve(b.WaitCard(), "--for", "1h")
	say(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), nil)
	act := func() {
		say(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.read", "wait_ms": 30_000,
			"action": map[string]any{"method": "GET", "path": "/v1/own"}}), nil)
	}
	act()
	replay := func(code string) {
		t.Helper()
		thief := newPuppet(t)
		thief.do("connect", b.Location().Socket)
		for i, line := range strings.Split(strings.TrimSpace(string(tape.sent)), "\n") {
			thief.do("send", line)
			switch {
			case i == 0: // a hello is a hello
				if r := thief.do("read"); !strings.Contains(r, `"nonce"`) {
					t.Fatalf("hello: %s", r)
				}
			case i == 1:
				thief.refused(wire.CodeWrongChannel, "read")
			default:
				thief.refused(code, "read")
			}
		}
	}
	replay(wire.CodeWrongChannel)
	b.refusedRow(wire.CodeWrongChannel, c.Session.SessionID)
	act()
	c.conn.Close()
	b.ended(c.Session.SessionID, session.ChannelClosed)
	replay(wire.CodeSessionEnded)
	up.only(t, "GET /v1/own", "GET /v1/own")
}

// tape keeps what is written.
type tape struct {
	net.Conn
	sent []byte
}

func (t *tape) Write(p []byte) (int, error) {
	t.sent = append(t.sent, p...)
	return t.Conn.Write(p)
}

// TestAttackSecondHello: an agent says hello again, as the person's command
// line, to be taken for it from then on.
func TestAttackSecondHello(t *testing.T) {
	b, up := demoBroker(t)
	p := newPuppet(t).greets(b)
	id, _ := p.granted(b, "http:demo.read")
	p.refused(wire.CodeProtocolError, "hello", "cli", "yett")
	if line := p.do("read"); line != "closed" {
		t.Errorf("the channel is open: %s", line)
	}
	b.refusedRow(wire.CodeProtocolError, "hello is said once")
	b.ended(id, session.ChannelClosed)
	up.only(t)
}

// TestAttackDescriptorWithAMessage: a client slips the broker a descriptor.
func TestAttackDescriptorWithAMessage(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	null, err := net.ListenUnix("unix", &net.UnixAddr{Name: "", Net: "unix"})
	must(t, err)
	defer null.Close()
	f, err := null.File()
	must(t, err)
	defer f.Close()
	_, _, err = c.conn.WriteMsgUnix([]byte(actionLine(c.Session.SessionID, c.seq+1, "/v1/evil")+"\n"), syscall.UnixRights(int(f.Fd())), nil)
	must(t, err)
	if r, ok := c.Read(); ok && r.Code() != wire.CodeAttributionFailed {
		t.Errorf("%q %s", r.Code(), r.Result)
	}
	b.changed(c.Session.SessionID, wire.CodeAttributionFailed)
	up.only(t)
}

// TestAttackInterleavedSequence: a client repeats, skips and reorders numbers;
// what is refused uses up nothing.
func TestAttackInterleavedSequence(t *testing.T) {
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	for _, number := range []int64{c.seq, c.seq + 2, 0, -1, 1 << 62} {
		if r, ok := c.Send(actionLine(c.Session.SessionID, number, "/v1/evil")); !ok || r.Code() != wire.CodeSequenceInvalid {
			t.Errorf("number %d: %v %s", number, ok, r.Code())
		}
	}
	b.refusedRow(wire.CodeSequenceInvalid)
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/own"})
	up.only(t, "GET /v1/own")
}
