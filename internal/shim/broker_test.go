//go:build linux

package shim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// relayed is one line between the process that plays the broker's end of the
// socket and the test, which decides what the broker says.
type relayed struct {
	Conn  int    `json:"conn"`
	Kind  string `json:"kind"` // open, line, closed; towards the broker: line, close
	Line  string `json:"line,omitempty"`
	Files int    `json:"files,omitempty"` // descriptors that came so far
}

// playBroker listens as a broker does and relays lines. The program must be
// the installed yett, so it is a process of its own.
func playBroker(home string) int {
	loc, err := endpoint.InHome(home)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ln, err := endpoint.Listen(loc)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer ln.Close()
	var mu sync.Mutex
	conns := map[int]*net.UnixConn{}
	tell := func(r relayed) {
		b, _ := json.Marshal(r)
		mu.Lock()
		defer mu.Unlock()
		os.Stdout.Write(append(b, '\n'))
	}
	tell(relayed{Kind: "listening"})
	go func() {
		for n := 1; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[n] = c
			mu.Unlock()
			tell(relayed{Conn: n, Kind: "open"})
			go relayLines(n, c, tell)
		}
	}()
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var r relayed
		if json.Unmarshal(line, &r) != nil {
			return 1
		}
		mu.Lock()
		c := conns[r.Conn]
		mu.Unlock()
		switch r.Kind {
		case "line":
			c.Write([]byte(r.Line + "\n"))
		case "close":
			c.Close()
		}
	}
}

func relayLines(n int, c *net.UnixConn, tell func(relayed)) {
	var pending []byte
	files := 0
	b, oob := make([]byte, 64<<10), make([]byte, 256)
	for {
		got, oobn, _, _, err := c.ReadMsgUnix(b, oob)
		if messages, perr := syscall.ParseSocketControlMessage(oob[:oobn]); perr == nil {
			for _, m := range messages {
				if fds, err := syscall.ParseUnixRights(&m); err == nil {
					files += len(fds)
					for _, fd := range fds {
						syscall.Close(fd)
					}
				}
			}
		}
		pending = append(pending, b[:max(got, 0)]...)
		for {
			i := 0
			for i < len(pending) && pending[i] != '\n' {
				i++
			}
			if i == len(pending) {
				break
			}
			tell(relayed{Conn: n, Kind: "line", Line: string(pending[:i]), Files: files})
			pending = pending[i+1:]
		}
		if err != nil || got <= 0 {
			tell(relayed{Conn: n, Kind: "closed"})
			return
		}
	}
}

// asked is one request that reached the broker.
type asked struct {
	Conn   int
	ID     int64
	Method string
	Params json.RawMessage
	Files  int
}

// silence is the answer of a broker that does not answer yet.
var silence any = new(int)

// hangUp is the answer of a broker that closes the channel.
var hangUp any = new(int8)

// fakeBroker is a broker whose answers a test writes: answer gets what was
// asked and returns a result, a *wire.Error, json.RawMessage, silence or
// hangUp.
type fakeBroker struct {
	t    *testing.T
	home string
	cmd  *exec.Cmd
	in   *os.File

	mu      sync.Mutex
	asked   []asked
	closed  map[int]bool
	changed chan struct{}
	answer  func(asked) any
}

func testHome(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "yh-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func startBroker(t *testing.T, home string, answer func(asked) any) *fakeBroker {
	t.Helper()
	f := &fakeBroker{t: t, home: home, answer: answer, closed: map[int]bool{}, changed: make(chan struct{})}
	f.cmd = exec.Command(filepath.Join(programs, "yett"), home)
	f.cmd.Env = inRole("broker")
	f.cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	must(t, err)
	f.cmd.Stdin, f.in = r, w
	out, err := f.cmd.StdoutPipe()
	must(t, err)
	must(t, f.cmd.Start())
	r.Close()
	listening := make(chan struct{})
	go f.serve(bufio.NewReader(out), listening)
	t.Cleanup(f.stop)
	select {
	case <-listening:
	case <-time.After(patience):
		t.Fatal("the broker does not listen")
	}
	return f
}

// stop ends the broker as a crash would.
func (f *fakeBroker) stop() {
	f.in.Close()
	f.cmd.Process.Kill()
	f.cmd.Wait()
}

func (f *fakeBroker) serve(out *bufio.Reader, listening chan struct{}) {
	for {
		line, err := out.ReadBytes('\n')
		if err != nil {
			return
		}
		var r relayed
		if err := json.Unmarshal(line, &r); err != nil {
			f.t.Errorf("relay: %v", err)
			return
		}
		switch r.Kind {
		case "listening":
			close(listening)
		case "closed":
			f.note(func() { f.closed[r.Conn] = true })
		case "line":
			f.handle(r)
		}
	}
}

func (f *fakeBroker) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeBroker) handle(r relayed) {
	req, bad := wire.DecodeRequest([]byte(r.Line))
	if bad != nil {
		f.t.Errorf("the shim sent what the socket refuses: %v: %s", bad, r.Line)
		return
	}
	id, err := strconv.ParseInt(string(req.ID), 10, 64)
	if err != nil {
		f.t.Errorf("id %s: %v", req.ID, err)
	}
	a := asked{r.Conn, id, req.Method, req.Params, r.Files}
	f.mu.Lock()
	answer := f.answer
	f.mu.Unlock()
	ans := answer(a)
	f.note(func() { f.asked = append(f.asked, a) })
	f.reply(a, ans)
}

func (f *fakeBroker) reply(a asked, ans any) {
	if ans == silence {
		return
	}
	out := relayed{Conn: a.Conn, Kind: "line"}
	switch v := ans.(type) {
	case *int8:
		out.Kind = "close"
	case *wire.Error:
		b, err := wire.Reply{ID: json.RawMessage(strconv.FormatInt(a.ID, 10)), Error: v}.Encode()
		if err != nil {
			f.t.Errorf("encoding: %v", err)
		}
		out.Line = string(b[:len(b)-1])
	case json.RawMessage: // as it is, escapes nothing
		out.Line = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, a.ID, v)
	default:
		b, err := wire.Reply{ID: json.RawMessage(strconv.FormatInt(a.ID, 10)), Result: v}.Encode()
		if err != nil {
			f.t.Errorf("encoding: %v", err)
		}
		out.Line = string(b[:len(b)-1])
	}
	b, err := json.Marshal(out)
	if err != nil {
		f.t.Errorf("encoding: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.in.Write(append(b, '\n'))
}

// requests returns what was asked by a method so far.
func (f *fakeBroker) requests(method string) []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []asked
	for _, a := range f.asked {
		if a.Method == method {
			out = append(out, a)
		}
	}
	return out
}

// awaitRequest waits until the n-th request of a method has come.
func (f *fakeBroker) awaitRequest(method string, n int) asked {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if got := f.requests(method); len(got) >= n {
			return got[n-1]
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("%s number %d never came", method, n)
		}
	}
}

// awaitClosed waits until the client has closed a channel.
func (f *fakeBroker) awaitClosed(conn int) {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		f.mu.Lock()
		done, changed := f.closed[conn], f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("channel %d was never closed", conn)
		}
	}
}

// ordinary answers what every session begins with; then is asked for the rest.
func ordinary(then func(asked) any) func(asked) any {
	return func(a asked) any {
		switch a.Method {
		case wire.MethodHello:
			return wire.HelloResult{Protocol: 1, BrokerVersion: "test", BrokerInstance: "i_1", ChannelID: fmt.Sprintf("c_%d", a.Conn), Nonce: fmt.Sprintf("n_%d", a.Conn)}
		case wire.MethodSessionOpen:
			return wire.SessionResult{SessionID: fmt.Sprintf("s_%d", a.Conn), State: "active", Capabilities: []string{}, ExpiresAt: time.Now().Add(time.Hour)}
		}
		return then(a)
	}
}
