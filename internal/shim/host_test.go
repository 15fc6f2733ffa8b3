//go:build linux

package shim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come. It is no measure of
// speed: where a case names a time, the test takes it.
const patience = 10 * time.Second

// host is an agent's host as the shim sees it: it writes lines and reads
// lines, and it checks every line that comes.
type host struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	stderr *syncBuffer

	exited chan struct{} // closed with code set
	code   int

	mu      sync.Mutex
	lines   [][]byte
	replies map[string]json.RawMessage // by raw id
	changed chan struct{}              // replaced at each line
	ended   bool                       // end of standard output
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startShim starts yett-mcp with an empty environment over pipes.
func startShim(t *testing.T, args ...string) *host {
	t.Helper()
	return startHost(t, exec.Command(shimPath(), args...), nil)
}

// startHost starts cmd. stdin is the child's end of a socket, or nil for a
// pipe; then h.in is nil and the caller holds the other end.
func startHost(t *testing.T, cmd *exec.Cmd, stdin *os.File) *host {
	t.Helper()
	return start(t, cmd, stdin, nil)
}

// startHostStderr is startHost with standard error of the test's own.
func startHostStderr(t *testing.T, cmd *exec.Cmd, stderr *os.File) *host {
	t.Helper()
	return start(t, cmd, nil, stderr)
}

func start(t *testing.T, cmd *exec.Cmd, stdin, stderr *os.File) *host {
	t.Helper()
	h := &host{t: t, cmd: cmd, stderr: &syncBuffer{}, exited: make(chan struct{}),
		replies: map[string]json.RawMessage{}, changed: make(chan struct{})}
	if cmd.Env == nil {
		cmd.Env = []string{} // B3: nothing is needed
	}
	var theirs []*os.File
	if stdin == nil {
		r, w, err := os.Pipe()
		must(t, err)
		stdin, h.in = r, w
		theirs = append(theirs, r)
	}
	r, w, err := os.Pipe()
	must(t, err)
	h.out = r
	theirs = append(theirs, w)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, w, h.stderr
	if stderr != nil {
		cmd.Stderr = stderr
	}
	must(t, cmd.Start())
	for _, f := range theirs {
		f.Close()
	}
	read := make(chan struct{})
	go func() { h.read(); close(read) }()
	go func() {
		cmd.Wait()
		h.code = cmd.ProcessState.ExitCode()
		close(h.exited)
	}()
	t.Cleanup(func() {
		if h.in != nil {
			h.in.Close()
		}
		cmd.Process.Kill()
		<-h.exited
		h.out.Close()
		<-read
		if t.Failed() {
			t.Logf("standard error:\n%.2000s", h.stderr)
		}
	})
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read checks every line: it is one JSON-RPC message and no program splits it.
func (h *host) read() {
	r := bufio.NewReaderSize(h.out, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			h.take(line)
		}
		if err != nil {
			h.mu.Lock()
			h.ended = true
			close(h.changed)
			h.changed = make(chan struct{})
			h.mu.Unlock()
			return
		}
	}
}

func (h *host) take(line []byte) {
	var m struct {
		JSONRPC string
		ID      json.RawMessage
		Method  string
	}
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		h.t.Errorf("standard output has a line that is no JSON-RPC: %.200q", line)
	}
	if line[len(line)-1] != '\n' || hasSeparator(line) {
		h.t.Errorf("standard output has a line that can be split or has no end: %.200q", line)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	if m.Method == "" {
		h.replies[string(m.ID)] = line
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// send writes lines.
func (h *host) send(lines ...string) {
	h.t.Helper()
	for _, l := range lines {
		if _, err := h.in.WriteString(l + "\n"); err != nil {
			h.t.Fatalf("writing to the shim: %v\n%s", err, h.stderr)
		}
	}
}

// await returns the reply to an id, as it stands on the line: 7, "x" or null.
func (h *host) await(id string) reply {
	h.t.Helper()
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		line, ok := h.replies[id]
		delete(h.replies, id)
		ended, changed := h.ended, h.changed
		h.mu.Unlock()
		if ok {
			return parseReply(h.t, line)
		}
		if ended {
			h.t.Fatalf("standard output ended before the reply to %s\n%s", id, h.stderr)
		}
		select {
		case <-changed:
		case <-deadline:
			h.t.Fatalf("no reply to %s: silence\n%s", id, h.stderr)
		}
	}
}

// awaitExit returns the exit code and how long it took.
func (h *host) awaitExit() (int, time.Duration) {
	h.t.Helper()
	began := time.Now()
	select {
	case <-h.exited:
	case <-time.After(patience):
		h.t.Fatalf("the shim did not exit\n%s", h.stderr)
	}
	return h.code, time.Since(began)
}

type reply struct {
	ID    json.RawMessage
	Error *struct {
		Code    int
		Message string
		Data    struct {
			Code     string
			NextStep string `json:"next_step"`
		}
	}
	Result struct {
		ProtocolVersion   string
		SupportedVersions []string
		Tools             []struct {
			Name         string
			InputSchema  map[string]any
			OutputSchema map[string]any
		}
		Content []struct{ Type, Text string }
		IsError bool
	}
}

func parseReply(t *testing.T, line []byte) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatalf("reading %s: %v", line, err)
	}
	return r
}

// text returns the one text block of a tool result.
func (r reply) text(t *testing.T) string {
	t.Helper()
	if r.Error != nil {
		t.Fatalf("the call got the error %d %s", r.Error.Code, r.Error.Message)
	}
	if len(r.Result.Content) != 1 || r.Result.Content[0].Type != "text" {
		t.Fatalf("the result is not one text block: %+v", r.Result)
	}
	return r.Result.Content[0].Text
}

func request(id any, method, params string) string {
	b, err := json.Marshal(id)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, b, method, params)
}

func toolCall(id any, name, arguments string) string {
	return request(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

// modernMeta is what every request of protocol 2026-07-28 carries.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"agent","version":"7"},"io.modelcontextprotocol/clientCapabilities":{}}`

func initialize(id any, version string) string {
	return request(id, "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"elicitation":{}},"clientInfo":{"name":"agent","version":"7"}}`, version))
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// ready goes through the handshake.
func (h *host) ready() *host {
	h.t.Helper()
	h.send(initialize("init", "2025-11-25"))
	h.await(`"init"`)
	h.send(initialized)
	return h
}

// call calls a tool and returns the result's text and whether it is an error.
func (h *host) call(name, arguments string) (string, bool) {
	h.t.Helper()
	h.send(toolCall("call", name, arguments))
	r := h.await(`"call"`)
	return r.text(h.t), r.Result.IsError
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the text lacks %q:\n%s", p, text)
		}
	}
}

func lacks(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(text, p) {
			t.Errorf("the text has %q:\n%s", p, text)
		}
	}
}

// socketPair returns a connected pair of stream sockets.
func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}
