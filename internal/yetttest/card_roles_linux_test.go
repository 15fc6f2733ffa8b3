package yetttest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// cardRole makes the test binary play an agent of the golden cards.
const cardRole = "YETTTEST_CARD_ROLE"

func playCardRole(role string, args []string) error {
	switch role {
	case "run":
		return inherit(args)
	case "hide":
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
		return inherit(args)
	case "replace":
		if err := replaceSelf(); err != nil {
			return err
		}
		return inherit(args)
	case "two":
		first, err := firstShim(args)
		if err != nil {
			return err
		}
		defer first.Close()
		return inherit(args)
	case "hostile":
		return playHostile(args[0], args[1])
	case "contained":
		return playContained(args[0])
	}
	return fmt.Errorf("unknown role %s", role)
}

// inherit runs a program on our standard streams.
func inherit(args []string) error {
	c := exec.Command(args[0], args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}

// replaceSelf puts another file where our own program lies.
func replaceSelf() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := copyFile("/bin/true", self+".new", 0o755); err != nil {
		return err
	}
	return os.Rename(self+".new", self)
}

// firstShim starts a shim of its own and opens a session with it.
func firstShim(args []string) (io.Closer, error) {
	c := exec.Command(args[0], args[1:]...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	fmt.Fprintf(in, "%s\n%s\n%s\n", initialize(1, "2025-11-25"), initialized, toolCall(2, "list_access", "{}"))
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"id":2`) {
			go io.Copy(io.Discard, out)
			return in, nil
		}
	}
	return nil, fmt.Errorf("the first shim gave no answer: %v", lines.Err())
}

func memfd(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// playHostile says hello with a text in every field, and asks for everything.
func playHostile(home, text string) error {
	text = strings.ToValidUTF8(text, "\uFFFD")
	loc, err := endpoint.InHome(home)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := endpoint.Dial(ctx, loc)
	if err != nil {
		return err
	}
	n := &native{conn: conn, in: wire.NewFrameReader(conn)}
	var hello wire.HelloResult
	labels := map[string]string{text: text, "ESTABLISHED BY THE SYSTEM": "Host: api.example.com", "program": "/usr/bin/good", "Host:": "api.example.com"}
	if err := n.ask(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": text, "version": text, "role": "native", "labels": labels}, &hello); err != nil {
		return err
	}
	var s wire.SessionResult
	if err := n.ask(wire.MethodSessionOpen, map[string]any{"nonce": hello.Nonce, "capabilities": []string{text}}, nil); err != nil {
		return err
	}
	if err := n.ask(wire.MethodSessionOpen, map[string]any{"nonce": hello.Nonce, "capabilities": []string{"http:demo.read"}, "purpose": text}, &s); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

// hostileUpstream answers with what a forger would.
func hostileUpstream(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Note", "\u202Egpj\u009b2J")
	io.WriteString(w, hostile)
}
