package yetttest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// nodeDir is where the Node client lies for the account of the tests.
func nodeDir() string { return filepath.Join(os.Getenv(envBin), "node") }

// installNode puts the Node client and its modules into dir. make test has
// installed them in the source tree; else they are installed here. What fails
// is left as a sentence for the tests that need it: all others can run.
func installNode(dir string) error {
	to := filepath.Join(dir, "node")
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	there := true
	for _, module := range []string{"@modelcontextprotocol/sdk", "@simplewebauthn/server", "oidc-provider"} {
		_, err := os.Stat("node/node_modules/" + module + "/package.json")
		there = there && err == nil
	}
	if there {
		return run("cp", "-R", "node/.", to)
	}
	for _, f := range []string{"package.json", "package-lock.json", ".npmrc", "client.mjs", "receipt.mjs", "oidc.mjs"} {
		if err := copyFile(filepath.Join("node", f), filepath.Join(to, f), 0o644); err != nil {
			return err
		}
	}
	npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
	npm.Dir = to
	if out, err := npm.CombinedOutput(); err != nil {
		why := fmt.Sprintf("npm ci in internal/yetttest/node could not install the MCP client of the TypeScript SDK, the verifier of WebAuthn and the authorization server: %v\n%s", err, out)
		return os.WriteFile(filepath.Join(to, "MISSING"), []byte(why), 0o644)
	}
	return run("chmod", "-R", "a+rX", to)
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// node is the client of the TypeScript SDK. Its process is the agent, and it
// speaks to yett-mcp on a socket.
type node struct {
	t   testing.TB
	cmd *exec.Cmd
	in  *os.File
	pid int // of yett-mcp

	mu      sync.Mutex
	next    int
	waiting map[int]chan nodeAnswer
	asked   int
	events  []nodeAnswer
	ended   chan struct{}
}

type nodeAnswer struct {
	ID       int             `json:"id"`
	Result   json.RawMessage `json:"result"`
	Error    string          `json:"error"`
	Elicited int             `json:"elicited"`
	Event    string          `json:"event"`
	PID      int             `json:"pid"`
	Message  string          `json:"message"`
}

func needNode(t testing.TB) {
	t.Helper()
	if why, err := os.ReadFile(filepath.Join(nodeDir(), "MISSING")); err == nil {
		t.Fatalf("%s\nIt needs a registry of npm packages once; scripts/node-modules does the same.", why)
	}
}

// startNode starts a Node host; how is the command that it starts in place of
// yett-mcp itself.
func (b *Broker) startNode(how ...string) *node {
	b.T.Helper()
	needNode(b.T)
	if len(how) == 0 {
		how = []string{Bin("yett-mcp"), "--home", b.Home}
	}
	n := &node{t: b.T, waiting: map[int]chan nodeAnswer{}, ended: make(chan struct{})}
	n.cmd = exec.Command("node", append([]string{filepath.Join(nodeDir(), "client.mjs")}, how...)...)
	n.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GORACE=" + os.Getenv("GORACE")}
	log := &buffer{}
	errR, errW, err := os.Pipe() // not left to Cmd: its Wait waits for yett-mcp too
	must(b.T, err)
	n.cmd.Stderr = errW
	r, in, err := os.Pipe()
	must(b.T, err)
	out, w, err := os.Pipe()
	must(b.T, err)
	n.cmd.Stdin, n.cmd.Stdout, n.in = r, w, in
	must(b.T, n.cmd.Start())
	r.Close()
	w.Close()
	errW.Close()
	go func() {
		io.Copy(log, errR)
		errR.Close()
	}()
	connected := make(chan nodeAnswer, 1)
	go n.read(out, connected)
	b.T.Cleanup(func() {
		in.Close()
		n.cmd.Process.Kill()
		n.cmd.Wait()
		<-n.ended
		if b.T.Failed() {
			b.T.Logf("standard error of node:\n%.4000s", log)
		}
	})
	select {
	case a := <-connected:
		n.pid = a.PID
	case <-n.ended:
		b.T.Fatalf("node ended:\n%s", log)
	case <-time.After(Patience):
		b.T.Fatalf("node does not connect:\n%s", log)
	}
	return n
}

func (n *node) read(out *os.File, connected chan<- nodeAnswer) {
	defer close(n.ended)
	defer out.Close()
	for lines := bufio.NewReaderSize(out, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var a nodeAnswer
		if err := json.Unmarshal(line, &a); err != nil {
			n.t.Errorf("node said %q", line)
			continue
		}
		n.mu.Lock()
		switch {
		case a.Event == "connected":
			connected <- a
		case a.Event != "":
			n.events = append(n.events, a)
		default:
			n.asked = a.Elicited
			n.waiting[a.ID] <- a
			delete(n.waiting, a.ID)
		}
		n.mu.Unlock()
	}
}

func (n *node) do(request map[string]any) (nodeAnswer, error) {
	answer := make(chan nodeAnswer, 1)
	n.mu.Lock()
	n.next++
	request["id"] = n.next
	n.waiting[n.next] = answer
	n.mu.Unlock()
	line, err := json.Marshal(request)
	if err != nil {
		return nodeAnswer{}, err
	}
	if _, err := n.in.Write(append(line, '\n')); err != nil {
		return nodeAnswer{}, err
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-n.ended:
		return nodeAnswer{}, errors.New("node ended")
	case <-time.After(Patience):
		return nodeAnswer{}, errors.New("no answer")
	}
}

func (n *node) elicited() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (n *node) tools() []mcpTool {
	n.t.Helper()
	a, err := n.do(map[string]any{"do": "list"})
	must(n.t, err)
	var r struct{ Tools []mcpTool }
	must(n.t, json.Unmarshal(a.Result, &r))
	return r.Tools
}

func (n *node) call(name string, arguments map[string]any) said {
	a, err := n.do(map[string]any{"do": "call", "name": name, "arguments": arguments})
	if err != nil {
		n.t.Errorf("%s: %v", name, err)
		return said{}
	}
	var r struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(a.Result, &r); err != nil || len(r.Content) != 1 {
		n.t.Errorf("%s: %v in %s", name, err, a.Result)
		return said{}
	}
	return said{r.Content[0].Text, r.IsError}
}

// TestMCP_NodeSDK: the whole job by the client of the TypeScript SDK, whose
// standard input is a socket: who made it is established by the kernel.
func TestMCP_NodeSDK(t *testing.T) {
	w := startWork(t)
	n := w.b.startNode()
	if kind := fdKind(t, n.pid, 0); kind != "socket" {
		t.Fatalf("standard input of yett-mcp is a %s: this test is about sockets", kind)
	}
	w.job(t, n)
	var mine []wire.Session
	for _, s := range w.b.Sessions() {
		if s.Caller.Role == wire.RoleShim {
			mine = append(mine, s)
		}
	}
	if len(mine) != 1 || mine[0].Unit != action.UnitProcess || mine[0].Caller.Agent == nil || mine[0].Caller.Agent.Kernel.PID != n.cmd.Process.Pid {
		t.Errorf("sessions: %+v", mine)
	}
	for _, e := range n.events {
		t.Errorf("the SDK reported %s %s", e.Event, e.Message)
	}
	if _, err := n.do(map[string]any{"do": "close"}); err != nil {
		t.Error(err)
	}
	awaitGone(t, n.pid)
	w.b.ended(mine[0].SessionID, session.ShimExited, session.ChannelClosed)
}

func fdKind(t testing.TB, pid, fd int) string {
	t.Helper()
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	must(t, err)
	kind, _, _ := strings.Cut(target, ":")
	return kind
}
