package console_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/yetttest"
)

// A stranger is a process of another account that asks for addresses. Only root
// can start one; it waits for addresses in a pipe.
var strangerProcess *exec.Cmd

const strangerLoop = `while true; do while read -r url; do curl -s -m 10 -o /dev/null -w '%{http_code}\n' "$url" >"$1/answers"; done <"$1/addresses"; done`

func prepareStranger(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"addresses", "answers"} {
		file := filepath.Join(dir, name)
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			return err
		}
		if err := os.Chmod(file, 0o666); err != nil {
			return err
		}
	}
	strangerProcess = exec.Command("sh", "-c", strangerLoop, "stranger", dir)
	strangerProcess.SysProcAttr = &syscall.SysProcAttr{Setpgid: true,
		Credential: &syscall.Credential{Uid: yetttest.AccountID + 1, Gid: yetttest.AccountID + 1}}
	return strangerProcess.Start()
}

func endStranger() {
	if strangerProcess != nil {
		syscall.Kill(-strangerProcess.Process.Pid, syscall.SIGKILL)
		strangerProcess.Wait()
	}
}

// askAsStranger asks for an address as another account; ok is false where none
// could be had.
func askAsStranger(t *testing.T, address string) (status string, ok bool) {
	t.Helper()
	dir := filepath.Dir(yetttest.Bin("yett"))
	if _, err := os.Stat(filepath.Join(dir, "addresses")); err != nil {
		return "", false
	}
	in, err := os.OpenFile(filepath.Join(dir, "addresses"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, address)
	in.Close()
	out, err := os.OpenFile(filepath.Join(dir, "answers"), os.O_RDWR, 0) // no end of file between two writers
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	out.SetReadDeadline(time.Now().Add(yetttest.Patience))
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), true
}
