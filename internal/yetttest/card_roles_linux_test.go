package yetttest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
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
