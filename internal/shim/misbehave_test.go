//go:build linux

package shim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

// playMisbehaving is the shim with tools that print, flood and break.
func playMisbehaving() int {
	plain := `{"type":"object","properties":{}}`
	catalogue := append(tools(),
		tool{name: "x_print", schema: plain, run: func(context.Context, *call) *mcp.CallToolResult {
			fmt.Println("printed by mistake")
			os.Stdout.WriteString("written to os.Stdout\n")
			println("println")
			syscall.Write(1, []byte("written to descriptor 1\n"))
			log.Print("logged")
			return text(false, "printed")
		}},
		tool{name: "x_flood", schema: plain, run: func(context.Context, *call) *mcp.CallToolResult {
			for i := range 20000 {
				fmt.Println("line", i, strings.Repeat("x", 100))
			}
			return text(false, "flooded")
		}},
		tool{name: "x_panic", schema: plain, run: func(context.Context, *call) *mcp.CallToolResult {
			panic("broken handler")
		}},
		tool{name: "x_crash", schema: plain, run: func(ctx context.Context, _ *call) *mcp.CallToolResult {
			go panic("broken goroutine")
			<-ctx.Done()
			return text(false, "never")
		}},
		tool{name: "x_long", schema: plain, run: func(context.Context, *call) *mcp.CallToolResult {
			return text(false, strings.Repeat("long ", 1<<16))
		}},
	)
	return serve("test", "", os.Stdin, os.Stdout, os.Stderr, catalogue)
}

func startMisbehaving(t *testing.T) *host {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = inRole("misbehave")
	return startHost(t, cmd, nil).ready()
}

// host.take checks every line of standard output in all of these.

func TestB2_PrintsDoNotReachTheProtocol(t *testing.T) {
	h := startMisbehaving(t)
	if said, isError := h.call("x_print", "{}"); isError || said != "printed" {
		t.Error(said)
	}
	if said, _ := h.call("x_flood", "{}"); said != "flooded" {
		t.Error(said)
	}
	h.in.Close()
	h.awaitExit()
	for _, want := range []string{"printed by mistake", "written to os.Stdout", "println", "written to descriptor 1", "logged", "line 19999 "} {
		if !strings.Contains(h.stderr.String(), want) {
			t.Errorf("standard error lacks %q", want)
		}
	}
}

func TestB2_PanicIsOneAnswer(t *testing.T) {
	h := startMisbehaving(t)
	said, isError := h.call("x_panic", "{}")
	if !isError || !strings.HasPrefix(said, "internal: ") || strings.Contains(said, "broken handler") {
		t.Errorf("%v %s", isError, said)
	}
	h.send(request(2, "ping", "{}"))
	h.await("2")
	h.in.Close()
	h.awaitExit()
	wants(t, h.stderr.String(), "panic in tools/call: broken handler", "goroutine")
}

func TestB2_CrashWritesToStderrOnly(t *testing.T) {
	h := startMisbehaving(t)
	h.send(toolCall(1, "x_crash", "{}"))
	if code, _ := h.awaitExit(); code == 0 {
		t.Error("a crash exits with 0")
	}
	wants(t, h.stderr.String(), "panic: broken goroutine")
}

// The agent reads slowly: the pipe is full in the middle of a line when the
// signal comes, and the rest of the line still arrives.
func TestB2_SIGTERMLeavesNoHalfLine(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = inRole("misbehave")
	in, err := cmd.StdinPipe()
	must(t, err)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	cmd.Stdout = w
	must(t, cmd.Start())
	w.Close()
	lines := bufio.NewReader(r)
	fmt.Fprintln(in, initialize(1, "2025-11-25"))
	_, err = lines.ReadBytes('\n')
	must(t, err)
	fmt.Fprintln(in, initialized)
	fmt.Fprintln(in, toolCall(2, "x_long", "{}"))
	awaitFull(t, r)
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select { // an end that does not wait for the line comes at once
	case err := <-ended:
		t.Errorf("it ended in the middle of a line: %v", err)
		ended <- err
	case <-time.After(sealWait / 4):
	}
	rest, err := io.ReadAll(lines)
	must(t, err)
	if !bytes.HasSuffix(rest, []byte("\n")) || !json.Valid(rest) || parseReply(t, rest).text(t) != strings.Repeat("long ", 1<<16) {
		t.Errorf("a line of %d bytes is not whole", len(rest))
	}
	must(t, <-ended)
}

// awaitFull waits until a pipe takes no more.
func awaitFull(t *testing.T, r *os.File) {
	t.Helper()
	raw, err := r.SyscallConn()
	must(t, err)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		var queued, size int
		must(t, raw.Control(func(fd uintptr) {
			queued, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			size, _ = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
		}))
		if size > 0 && queued == size {
			return
		}
	}
	t.Fatal("the pipe never was full")
}

// A host that never reads standard error does not stop the shim.
func TestB2_UnreadStderrBlocksNothing(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = inRole("misbehave")
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	fill(t, w)
	h := startHostStderr(t, cmd, w)
	w.Close()
	h.ready()
	for range 100 {
		if said, isError := h.call("x_panic", "{}"); !isError {
			t.Error(said)
		}
	}
	h.in.Close()
	if code, took := h.awaitExit(); code != 0 || took > patience/2 {
		t.Errorf("exit %d after %v", code, took)
	}
}

// fill fills a pipe.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		must(t, syscall.SetNonblock(int(fd), true))
		b := make([]byte, 4096)
		for {
			if _, err := syscall.Write(int(fd), b); err != nil {
				break
			}
		}
		must(t, syscall.SetNonblock(int(fd), false))
	}))
}
