package yetttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/wire"
)

// containerDoor is where a process in other pid and mount namespaces waits to
// be told the home of a broker. Only root can make one that has the user
// namespace and the account of the broker.
const containerDoor = "contained"

func startContained(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	door := filepath.Join(dir, containerDoor)
	if err := unix.Mkfifo(door, 0o600); err != nil {
		return err
	}
	if err := os.Chown(door, AccountID, AccountID); err != nil {
		return err
	}
	program := filepath.Join(dir, "contained-agent")
	if err := copyFile("/proc/self/exe", program, 0o755); err != nil {
		return err
	}
	contained = exec.Command(program, door)
	contained.Env = []string{cardRole + "=contained", "GORACE=" + os.Getenv("GORACE")}
	contained.Dir = "/"
	contained.Stderr = os.Stderr
	contained.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true,
		Credential: &syscall.Credential{Uid: AccountID, Gid: AccountID}}
	return contained.Start()
}

// playContained asks each broker that it is told of for a capability and stays
// until that broker has gone. It cannot prove the broker, which has no process
// id in its namespace, so it speaks by hand.
func playContained(door string) error {
	for {
		home, err := os.ReadFile(door) // opens when somebody writes
		if err != nil {
			return err
		}
		if err := askContained(string(home)); err != nil {
			fmt.Fprintln(os.Stderr, "contained:", err)
		}
	}
}

func askContained(home string) error {
	conn, err := net.Dial("unix", filepath.Join(home, "run", "broker.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	in := wire.NewFrameReader(conn)
	ask := func(method string, params map[string]any, result any) error {
		frame, err := wire.EncodeRequest(1, method, params)
		if err != nil {
			return err
		}
		if _, err := conn.Write(frame); err != nil {
			return err
		}
		line, err := in.Next()
		if err != nil || result == nil {
			return err
		}
		return json.Unmarshal(line, &struct{ Result any }{result})
	}
	var hello wire.HelloResult
	if err := ask(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": "contained", "version": "1", "role": "native"}, &hello); err != nil {
		return err
	}
	if err := ask(wire.MethodSessionOpen, map[string]any{"nonce": hello.Nonce, "capabilities": []string{"http:demo.read"}, "purpose": "a test"}, nil); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}
