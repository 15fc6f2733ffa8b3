package yetttest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// host is an agent's host that speaks MCP by hand: it can say what no library
// would say. It judges every line that comes out of yett-mcp.
type host struct {
	t      testing.TB
	b      *Broker
	cmd    *exec.Cmd // yett-mcp, or an agent that started it
	in     *os.File
	out    *os.File
	stderr *buffer
	exited chan struct{}

	mu      sync.Mutex
	lines   [][]byte
	replies map[string][]byte // by raw id
	tail    []byte            // what came behind the last newline, at the end
	ended   bool
	changed chan struct{} // closed and replaced at each change

	wait     chan struct{} // not nil: the host does not read before it is closed
	onSocket bool          // standard input is a socket, as Node makes it
	// pair makes standard input in another way: our end and the shim's.
	pair   func() (mine, its *os.File, err error)
	nextID int
}

// startShim starts yett-mcp over pipes, without any environment. The agent is
// the process of the test.
func (b *Broker) startShim() *host {
	b.T.Helper()
	return b.host(exec.Command(Bin("yett-mcp"), "--home", b.Home), nil).start()
}

// host returns a host that is to start cmd. Its standard error is kept unless
// stderr says where it goes.
func (b *Broker) host(cmd *exec.Cmd, stderr *os.File) *host {
	h := &host{t: b.T, b: b, cmd: cmd, stderr: &buffer{}, exited: make(chan struct{}),
		replies: map[string][]byte{}, changed: make(chan struct{})}
	if cmd.Env == nil {
		cmd.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	}
	if stderr != nil {
		cmd.Stderr = stderr
	}
	return h
}

func (h *host) start() *host {
	h.t.Helper()
	pair := h.pair
	if pair == nil {
		pair = func() (mine, its *os.File, err error) { return link(h.onSocket) }
	}
	inW, inR, err := pair()
	must(h.t, err)
	outR, outW, err := os.Pipe()
	must(h.t, err)
	h.cmd.Stdin, h.cmd.Stdout = inR, outW
	h.in, h.out = inW, outR
	var errR, errW *os.File
	if h.cmd.Stderr == nil { // not left to Cmd: its Wait waits for all who inherited it
		errR, errW, err = os.Pipe()
		must(h.t, err)
		h.cmd.Stderr = errW
	}
	must(h.t, h.cmd.Start())
	inR.Close()
	outW.Close()
	read := make(chan struct{})
	go func() { h.read(); close(read) }()
	if errR != nil {
		errW.Close()
		go func() {
			io.Copy(h.stderr, errR)
			errR.Close()
		}()
	}
	go func() { h.cmd.Wait(); close(h.exited) }()
	h.t.Cleanup(func() {
		h.in.Close()
		h.cmd.Process.Kill()
		<-h.exited
		h.out.Close()
		h.resume()
		<-read
		if h.t.Failed() {
			h.t.Logf("standard error of %s:\n%.4000s", h.cmd.Path, h.stderr)
		}
	})
	return h
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pause keeps the host from reading on, after at most one more line.
func (h *host) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wait = make(chan struct{})
}

func (h *host) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wait != nil {
		close(h.wait)
		h.wait = nil
	}
}

func (h *host) read() {
	r := bufio.NewReaderSize(h.out, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		h.mu.Lock()
		wait := h.wait
		h.mu.Unlock()
		if wait != nil {
			<-wait
		}
		if err == nil {
			h.take(line)
			continue
		}
		h.mu.Lock()
		h.tail, h.ended = line, true
		h.wakeLocked()
		h.mu.Unlock()
		return
	}
}

func (h *host) wakeLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// take judges a line: one JSON-RPC message that no program splits in two.
func (h *host) take(line []byte) {
	if why := impure(line); why != "" {
		h.t.Errorf("standard output: %s: %.300q", why, line)
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	json.Unmarshal(line, &m)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	if m.Method == "" {
		h.replies[string(m.ID)] = line
	}
	h.wakeLocked()
}

// impure says why a line must not stand on standard output.
func impure(line []byte) string {
	var m struct {
		JSONRPC string           `json:"jsonrpc"`
		ID      *json.RawMessage `json:"id"`
		Method  string           `json:"method"`
		Result  json.RawMessage  `json:"result"`
		Error   json.RawMessage  `json:"error"`
	}
	switch err := json.Unmarshal(line, &m); {
	case err != nil:
		return "no JSON"
	case m.JSONRPC != "2.0", m.Method == "" && (m.Result == nil) == (m.Error == nil):
		return "no JSON-RPC"
	case !bytes.HasSuffix(line, []byte("\n")):
		return "a line without an end"
	}
	for _, separator := range []string{"\u2028", "\u2029", "\u0085", "\r", "\v", "\f"} {
		if bytes.Contains(line, []byte(separator)) {
			return fmt.Sprintf("%q in a line", separator)
		}
	}
	return ""
}

// until waits for something to be true of the host, and fails at the end of
// standard output.
func (h *host) until(what string, isSo func() bool) {
	h.t.Helper()
	deadline := time.After(Patience)
	for {
		h.mu.Lock()
		so, ended, changed := isSo(), h.ended, h.changed
		h.mu.Unlock()
		switch {
		case so:
			return
		case ended:
			h.t.Fatalf("standard output ended before %s\n%s", what, h.stderr)
		}
		select {
		case <-changed:
		case <-deadline:
			h.t.Fatalf("silence: %s did not come\n%s", what, h.stderr)
		}
	}
}

// closed waits for the end of standard output and returns an unfinished line.
func (h *host) closed() []byte {
	h.t.Helper()
	deadline := time.After(Patience)
	for {
		h.mu.Lock()
		ended, tail, changed := h.ended, h.tail, h.changed
		h.mu.Unlock()
		if ended {
			return tail
		}
		select {
		case <-changed:
		case <-deadline:
			h.t.Fatalf("standard output stays open\n%s", h.stderr)
		}
	}
}

// gone waits for the exit of the process and returns its code.
func (h *host) gone() int {
	h.t.Helper()
	select {
	case <-h.exited:
	case <-time.After(Patience):
		h.t.Fatalf("%s did not exit\n%s", h.cmd.Path, h.stderr)
	}
	return h.cmd.ProcessState.ExitCode()
}

// complains waits until standard error has a text.
func (h *host) complains(text string) {
	h.t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if strings.Contains(h.stderr.String(), text) {
			return
		}
	}
	h.t.Errorf("standard error lacks %q:\n%.2000s", text, h.stderr)
}

// send writes lines.
func (h *host) send(lines ...string) {
	h.t.Helper()
	for _, l := range lines {
		if _, err := h.in.WriteString(l + "\n"); err != nil {
			h.t.Fatalf("writing to yett-mcp: %v\n%s", err, h.stderr)
		}
	}
}

// writeUntilClosed goes on writing until yett-mcp has closed its output: what
// was written before yett-mcp could ask for senders has none, and is refused
// without an end.
func (h *host) writeUntilClosed() {
	h.t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				h.in.WriteString(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n") // fails once it has ended
			}
		}
	}()
	h.closed()
	close(stop)
	<-stopped
}

// answered tells, without waiting, whether the reply to id is there.
func (h *host) answered(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.replies[id] != nil
}

// await returns the reply to an id as it stands on the line: 7, "x" or null.
func (h *host) await(id string) mcpReply {
	h.t.Helper()
	var line []byte
	h.until("the reply to "+id, func() bool { line = h.replies[id]; delete(h.replies, id); return line != nil })
	var r mcpReply
	if err := json.Unmarshal(line, &r); err != nil {
		h.t.Fatalf("%v in %s", err, line)
	}
	return r
}

// ready goes through the handshake.
func (h *host) ready() *host {
	h.t.Helper()
	h.send(initialize("init", "2025-11-25"))
	h.await(`"init"`)
	h.send(initialized)
	return h
}

// begin calls a tool and returns the id of the call.
func (h *host) begin(name, arguments string) string {
	h.t.Helper()
	h.nextID++
	h.send(toolCall(h.nextID, name, arguments))
	return strconv.Itoa(h.nextID)
}

// call calls a tool and returns what it said.
func (h *host) call(name, arguments string) said {
	h.t.Helper()
	return h.await(h.begin(name, arguments)).said(h.t)
}

// grant asks for capabilities, lets the person approve, and returns the
// session's id. The words of the card are those that the agent was told.
func (h *host) grant(capabilities ...string) string {
	h.t.Helper()
	list, _ := json.Marshal(capabilities)
	asked := h.call("request_access", fmt.Sprintf(`{"capabilities":%s,"purpose":"a test","wait_ms":0}`, list))
	asked.wants(h.t, "pending: ")
	h.b.ApproveTag(asked.session(h.t).Pending.ApprovalID, asked.tag(h.t))
	r := h.call("request_access", fmt.Sprintf(`{"capabilities":%s,"wait_ms":30000}`, list)).wants(h.t, "granted: ").session(h.t)
	return r.SessionID
}

// CardOf returns a waiting card by its id.
func (b *Broker) CardOf(approvalID string) Card {
	b.T.Helper()
	for _, c := range b.Pending() {
		if c.ApprovalID == approvalID {
			return c
		}
	}
	b.T.Fatalf("there is no card %s", approvalID)
	return Card{}
}

// ApproveTag approves a card, if it shows the words of the tag: for an hour, or
// once where it is about one action.
func (b *Broker) ApproveTag(approvalID, tag string) {
	b.T.Helper()
	c := b.CardOf(approvalID)
	var shown struct {
		Tag     string
		Request *struct{}
	}
	if json.Unmarshal(c.Card, &shown) != nil || shown.Tag != tag {
		b.T.Fatalf("the card shows %q, the agent was told %q", shown.Tag, tag)
	}
	if shown.Request != nil {
		b.Approve(c)
		return
	}
	b.Approve(c, "--for", "1h")
}

// untilSession waits until a session is in a state that the test wants, and
// returns it.
func (b *Broker) untilSession(id string, isSo func(wire.Session) bool) wire.Session {
	b.T.Helper()
	var last wire.Session
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, s := range b.Sessions() {
			if s.SessionID == id {
				if last = s; isSo(s) {
					return s
				}
			}
		}
	}
	b.T.Fatalf("session %s stays %s %s", id, last.State, last.EndReason)
	return last
}

// ended waits for the end of a session, which must have one of the reasons.
func (b *Broker) ended(id string, reasons ...string) {
	b.T.Helper()
	s := b.untilSession(id, func(s wire.Session) bool { return s.State == "ended" })
	if !slices.Contains(reasons, s.EndReason) {
		b.T.Errorf("session %s ended with %s, want %v", id, s.EndReason, reasons)
	}
}

// endRow returns the reason that the ledger has for the end of a session.
func (b *Broker) endRow(id string) string {
	b.T.Helper()
	for _, r := range b.Activity() {
		if r.SessionID == id && r.Kind == "session.ended" {
			var o struct {
				EndReason string `json:"end_reason"`
			}
			json.Unmarshal(r.Outcome, &o)
			return o.EndReason
		}
	}
	return ""
}

// awaitGone waits until a process does not exist any more, or is dead.
func awaitGone(t testing.TB, pid int) {
	t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if dead(pid) {
			return
		}
	}
	t.Fatalf("process %d lives on", pid)
}

func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) != nil
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}
