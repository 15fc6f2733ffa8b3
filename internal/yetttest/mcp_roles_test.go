package yetttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// The test binary plays other programs when this variable is set.
const roleVariable = "YETTTEST_ROLE"

func init() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	os.Unsetenv(roleVariable)
	var err error
	switch role {
	case "agent":
		err = playAgent(os.Args[1:])
	case "hold": // holds what it inherited until it is killed
		_, err = io.Copy(io.Discard, os.NewFile(9, "life"))
	case "write": // writes its argument on an inherited descriptor
		_, err = os.NewFile(3, "inherited").WriteString(os.Args[1] + "\n")
	case "receive": // writes its argument on a descriptor that comes by SCM_RIGHTS
		err = playReceiver(os.Args[1])
	case "open": // opens a file, such as another process's pipe, and writes into it
		err = playIntruder(os.Args[1], os.Args[2])
	case "native":
		err = playNative(os.Args[1], os.Args[2])
	case "flood":
		err = playFlood(os.Args[1])
	case "garbage":
		err = playGarbage(os.Args[1], os.Args[2])
	default:
		err = fmt.Errorf("unknown role %s", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "playing", role, "failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// player returns a command that plays a role.
func player(role string, args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = []string{roleVariable + "=" + role, "GORACE=" + os.Getenv("GORACE")}
	c.Stderr = os.Stderr
	return c
}

// startAgent starts an agent in a process of its own, which starts yett-mcp:
// what the test says to the agent goes to yett-mcp and back. ways: "socket"
// (as Node does it) instead of a pipe; "grandchild" leaves a child of the
// agent that holds the writing end.
func (b *Broker) startAgent(ways ...string) *host {
	b.T.Helper()
	c := player("agent", append([]string{Bin("yett-mcp"), b.Home}, ways...)...)
	c.Stderr = nil // the host keeps it
	life, its, err := os.Pipe()
	must(b.T, err)
	c.ExtraFiles = []*os.File{life}
	h := b.host(c, nil).start()
	life.Close()
	b.T.Cleanup(func() { its.Close() }) // ends a grandchild
	return h
}

// shim is the process of yett-mcp that an agent started.
func (h *host) shim() int { return h.spoken(`shim (\d+)\n`) }

func (h *host) grandchild() int { return h.spoken(`grandchild (\d+)\n`) }

// spoken waits for a number on standard error.
func (h *host) spoken(pattern string) int {
	h.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if m := re.FindSubmatch(h.stderr.Bytes()); m != nil {
			pid, _ := strconv.Atoi(string(m[1]))
			return pid
		}
	}
	h.t.Fatalf("%s was not said:\n%s", pattern, h.stderr)
	return 0
}

// playAgent starts yett-mcp and passes bytes on. File 3 lives as long as the
// test.
func playAgent(args []string) error {
	shim := exec.Command(args[0], "--home", args[1])
	shim.Env = os.Environ()
	shim.Stdout, shim.Stderr = os.Stdout, os.Stderr
	mine, its, err := link(slices.Contains(args[2:], "socket"))
	if err != nil {
		return err
	}
	shim.Stdin = its
	if err := shim.Start(); err != nil {
		return err
	}
	its.Close()
	fmt.Fprintf(os.Stderr, "shim %d\n", shim.Process.Pid)
	if slices.Contains(args[2:], "grandchild") {
		g := player("hold")
		g.ExtraFiles = make([]*os.File, 7)
		g.ExtraFiles[0], g.ExtraFiles[6] = mine, os.NewFile(3, "life") // 3 and 9
		if err := g.Start(); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "grandchild %d\n", g.Process.Pid)
	}
	go func() {
		io.Copy(mine, os.Stdin)
		mine.Close()
	}()
	return shim.Wait()
}

// link returns the agent's and the shim's end of standard input.
func link(socket bool) (mine, its *os.File, err error) {
	if !socket {
		its, mine, err = os.Pipe()
		return mine, its, err
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return os.NewFile(uintptr(fds[0]), "mine"), os.NewFile(uintptr(fds[1]), "its"), nil
}

// playReceiver takes a descriptor from the socket on file 3.
func playReceiver(line string) error {
	f := os.NewFile(3, "from")
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	oob := make([]byte, 64)
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d messages: %w", len(messages), err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	_, err = os.NewFile(uintptr(fds[0]), "received").WriteString(line + "\n")
	return err
}

// native is a client that a role has for itself.
type native struct {
	conn *endpoint.Conn
	in   *wire.FrameReader
	id   string // of its session
}

// dialNative opens a session and says its id.
func dialNative(home string, capabilities ...string) (*native, error) {
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
	if err := n.ask(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": "native", "version": "0", "role": "native"}, &hello); err != nil {
		return nil, err
	}
	if err := n.ask(wire.MethodSessionOpen, map[string]any{"nonce": hello.Nonce, "capabilities": append([]string{}, capabilities...)}, &s); err != nil {
		return nil, err
	}
	n.id = s.SessionID
	fmt.Println("session", n.id)
	return n, nil
}

func (n *native) ask(method string, params map[string]any, result any) error {
	frame, err := wire.EncodeRequest(1, method, params)
	if err != nil {
		return err
	}
	if _, err := n.conn.Write(frame); err != nil {
		return err
	}
	line, err := n.in.Next()
	if err != nil {
		return err
	}
	return json.Unmarshal(line, &struct{ Result any }{result})
}

// playNative asks for one action when a person has approved: as itself, or
// after it has become another program.
func playNative(home, as string) error {
	n, err := dialNative(home, "http:demo.read")
	if err != nil {
		return err
	}
	var s wire.SessionResult
	if err := n.ask(wire.MethodSessionWait, map[string]any{"session_id": n.id, "sequence": 1, "wait_ms": 30_000}, &s); err != nil {
		return err
	}
	frame, err := wire.EncodeRequest(4, wire.MethodActionRequest, map[string]any{"session_id": n.id, "sequence": 2, "wait_ms": 30_000,
		"capability": "http:demo.read", "action": map[string]any{"method": "GET", "path": "/v1/as-" + as}})
	if err != nil {
		return err
	}
	if as == "itself" {
		if _, err := n.conn.Write(frame); err != nil {
			return err
		}
		line, err := n.in.Next()
		fmt.Printf("%s\n", line)
		return err
	}
	file, err := n.conn.File()
	if err != nil {
		return err
	}
	if err := unix.Dup2(int(file.Fd()), 9); err != nil { // a shell knows descriptors of one digit
		return err
	}
	return syscall.Exec("/bin/sh", []string{"sh", "-c", `printf '%s' "$1" >&9; IFS= read -r answer <&9; printf '%s\n' "$answer"`, "sh", string(frame)}, nil)
}

// playFlood asks without a pause, and holds memory that takes the kernel a
// moment to take back when the process is killed.
func playFlood(home string) error {
	ballast := make([]byte, 256<<20)
	for i := 0; i < len(ballast); i += 4096 {
		ballast[i] = 1
	}
	n, err := dialNative(home)
	if err != nil {
		return err
	}
	go io.Copy(io.Discard, n.conn)
	for number := int64(1); ; number++ {
		frame, err := wire.EncodeRequest(number, wire.MethodAccessList, map[string]any{"session_id": n.id, "sequence": number})
		if err != nil {
			return err
		}
		if _, err := n.conn.Write(frame); err != nil {
			return err
		}
		if number == 1000 {
			fmt.Println("flooding")
		}
		runtime.KeepAlive(ballast)
	}
}

// playIntruder answers "opened" before it writes.
func playIntruder(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	fmt.Println("opened")
	_, err = f.WriteString(line + "\n")
	return err
}

// playGarbage listens as a broker of home and answers everything with text,
// after a proper greeting if there is one to give.
func playGarbage(home, answer string) error {
	loc, err := endpoint.InHome(home)
	if err != nil {
		return err
	}
	ln, err := endpoint.Listen(loc)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			in := make([]byte, 64<<10)
			for {
				n, err := c.Read(in)
				if err != nil {
					return
				}
				fmt.Printf("received %d\n", n)
				say := answer
				if polite, isPolite := strings.CutPrefix(answer, "hello+"); isPolite {
					say = polite
					if id := helloID(in[:n]); id != "" {
						say = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocol":1,"broker_version":"0","broker_instance":"i","channel_id":"c","nonce":"n"}}`, id)
					}
				}
				if _, err := io.WriteString(c, say+"\n"); err != nil {
					return
				}
			}
		}()
	}
}

func helloID(b []byte) string {
	if !bytes.Contains(b, []byte(`"hello"`)) {
		return ""
	}
	m := regexp.MustCompile(`"id":(\d+)`).FindSubmatch(b)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// play runs a role to its end.
func play(t testing.TB, c *exec.Cmd) {
	t.Helper()
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %v", c.Args, err)
	}
}
