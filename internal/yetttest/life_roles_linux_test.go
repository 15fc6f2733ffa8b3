package yetttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// The test binary plays agents whose life is tested when this is set.
const lifeVariable = "YETTTEST_LIFE"

func init() {
	role := os.Getenv(lifeVariable)
	if role == "" {
		return
	}
	os.Unsetenv(lifeVariable)
	var err error
	switch role {
	case "agent":
		err = liveAgent(os.Args[1], os.Args[2:])
	case "crowd":
		err = liveCrowd(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role, "failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// living is a process that plays an agent, and what it says.
type living struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (b *Broker) live(role string, args ...string) *living {
	b.T.Helper()
	p := &living{t: b.T, cmd: exec.Command("/proc/self/exe", append([]string{b.Home}, args...)...)}
	p.cmd.Env = []string{lifeVariable + "=" + role, "GORACE=" + os.Getenv("GORACE")}
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	must(b.T, err)
	out, err := p.cmd.StdoutPipe()
	must(b.T, err)
	p.out = bufio.NewReader(out)
	must(b.T, p.cmd.Start())
	b.T.Cleanup(p.kill)
	return p
}

// word returns what the process says next behind a name.
func (p *living) word(name string) string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	rest, ok := strings.CutPrefix(line, name+" ")
	if !ok {
		p.t.Fatalf("it said %q, not %s (%v)", line, name, err)
	}
	return strings.TrimSpace(rest)
}

func (p *living) tell(what string) { fmt.Fprintln(p.in, what) }

func (p *living) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// liveAgent opens a session, says its id, and does what it is told: "close"
// closes the channel, "share" leaves a child that holds a copy of it, "end"
// ends the process, "post PATH" sends an action.
func liveAgent(home string, capabilities []string) error {
	n, err := dialNative(home, capabilities...)
	if err != nil {
		return err
	}
	for told := bufio.NewScanner(os.Stdin); told.Scan(); {
		switch told.Text() {
		case "close":
			n.conn.Close()
			fmt.Println("done close")
		case "share":
			copied, err := n.conn.File()
			if err != nil {
				return err
			}
			c := exec.Command("/bin/sleep", "60")
			c.ExtraFiles = []*os.File{copied}
			if err := c.Start(); err != nil {
				return err
			}
			fmt.Println("child", c.Process.Pid)
		case "end":
			return nil
		default:
			path, ok := strings.CutPrefix(told.Text(), "post ")
			if !ok {
				return fmt.Errorf("told to %s", told.Text())
			}
			if err := n.post(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// post waits until a person has decided, and sends one action.
func (n *native) post(path string) error {
	var s wire.SessionResult
	if err := n.ask(wire.MethodSessionWait, map[string]any{"session_id": n.id, "sequence": 1, "wait_ms": 30_000}, &s); err != nil {
		return err
	}
	return n.ask(wire.MethodActionRequest, map[string]any{"session_id": n.id, "sequence": 2, "capability": "http:demo.write",
		"action": map[string]any{"method": "POST", "path": path}}, &Operation{})
}

// liveCrowd opens as many channels with sessions as it gets, says how many it
// was given, and holds them.
func liveCrowd(home, many string) error {
	n, err := strconv.Atoi(many)
	if err != nil {
		return err
	}
	var held []*native // until this process ends
	for range n {
		if c, err := crowdIn(home); err == nil {
			held = append(held, c)
		}
	}
	fmt.Println("given", len(held))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// crowdIn opens one channel with a session that has nothing.
func crowdIn(home string) (*native, error) {
	loc, err := endpoint.InHome(home)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := endpoint.Dial(ctx, loc)
	if err != nil {
		return nil, err
	}
	n := &native{conn: conn, in: wire.NewFrameReader(conn)}
	var hello wire.HelloResult
	var s wire.SessionResult
	err = n.ask(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": "crowd", "version": "0", "role": "native"}, &hello)
	if err == nil {
		err = n.ask(wire.MethodSessionOpen, map[string]any{"nonce": hello.Nonce, "capabilities": []string{}}, &s)
	}
	if err == nil && s.SessionID == "" {
		err = errors.New("refused")
	}
	if err != nil {
		conn.Close()
	}
	return n, err
}
