package yetttest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// SecondID is another ordinary account. Only root can make its processes, so
// root starts one before it changes to the account of the tests: it makes a
// puppet of the second account for each connection.
const SecondID = AccountID + 1

const (
	puppetVariable = "YETTTEST_PUPPET" // makes the test binary a puppet
	secondVariable = "YETTTEST_SECOND" // and this the server that starts them
	secondSocket   = "second.sock"
)

var secondLife *os.File // its end ends the second account's server

func init() {
	dir := os.Getenv(secondVariable)
	if dir == "" {
		return
	}
	os.Unsetenv(secondVariable)
	if err := serveSecond(filepath.Join(dir, secondSocket)); err != nil {
		fmt.Fprintln(os.Stderr, "the second account:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startSecond starts the second account's server, if root can.
func startSecond(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	own := filepath.Join(dir, "second")
	if err := os.Mkdir(own, 0o755); err != nil {
		return err
	}
	if err := os.Chown(own, SecondID, SecondID); err != nil {
		return err
	}
	program := filepath.Join(dir, "second-tests")
	if err := copyFile("/proc/self/exe", program, 0o755); err != nil {
		return err
	}
	life, end, err := os.Pipe()
	if err != nil {
		return err
	}
	c := exec.Command(program)
	c.Dir = own
	c.Env = []string{secondVariable + "=" + own, "GORACE=" + os.Getenv("GORACE"), "TMPDIR=" + own}
	c.Stdin, c.Stderr = life, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: SecondID, Gid: SecondID}}
	up, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	life.Close()
	secondLife = end
	_, err = bufio.NewReader(up).ReadString('\n')
	return err
}

func stopSecond() {
	if secondLife != nil {
		secondLife.Close()
	}
}

// serveSecond runs as the second account until its standard input ends.
func serveSecond(path string) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return err
	}
	fmt.Println("listening")
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		f, err := c.(*net.UnixConn).File()
		if err != nil {
			return err
		}
		c.Close()
		p := exec.Command("/proc/self/exe")
		p.Env = []string{puppetVariable + "={}", "GORACE=" + os.Getenv("GORACE"), "TMPDIR=" + os.Getenv("TMPDIR")}
		p.Stdin, p.Stdout, p.Stderr = f, f, os.Stderr
		if err := p.Start(); err != nil {
			return err
		}
		f.Close()
		go p.Wait() // it ends with its standard input
	}
}

// needsSecond says what cannot be shown without root.
func needsSecond(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(Bin(filepath.Join("second", secondSocket))); err != nil {
		t.Skip("NOT SHOWN: only root can make processes of a second account; run the tests as root")
	}
}
