package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// account is a home directory that the account database names, in a namespace
// of mounts where this is the account database.
type account struct {
	t         *testing.T
	bin, home string
	wrap      []string // what runs a program there
}

// newAccount copies the test itself to where yett is installed: TestMain makes
// it yett there. The whole of /etc is covered: a mount over a file is gone, in
// every namespace, once somebody on the machine replaces that file by a rename,
// as every change of the account database does.
func newAccount(t *testing.T) account {
	t.Helper()
	dir := t.TempDir()
	a := account{t: t, bin: filepath.Join(dir, "bin"), home: filepath.Join(dir, "home")}
	etc := filepath.Join(dir, "etc")
	err := errors.Join(os.Mkdir(a.bin, 0o755), os.Mkdir(a.home, 0o700), os.Mkdir(etc, 0o755), os.WriteFile(filepath.Join(etc, "passwd"), []byte("root:x:0:0::"+a.home+":/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(a.bin, "yett-mcp"), nil, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", self, filepath.Join(a.bin, "yett")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.wrap = []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc && exec "$@"`, etc}
	if os.Getuid() != 0 {
		a.wrap = append([]string{"unshare", "--map-root-user"}, a.wrap[1:]...)
		if out, err := exec.Command("unshare", "--map-root-user", "--mount", "true").CombinedOutput(); err != nil {
			t.Skipf("accounts may not make namespaces here: %s", out)
		}
	}
	return a
}

func (a account) command(args ...string) *exec.Cmd {
	c := exec.Command(a.wrap[0], append(append(a.wrap[1:len(a.wrap):len(a.wrap)], filepath.Join(a.bin, "yett")), args...)...)
	c.Env = []string{"HOME=/nowhere", "PATH=/usr/bin:/bin"}
	return c
}

// run runs yett without a terminal.
func (a account) run(args ...string) (out string, code int) {
	a.t.Helper()
	c := a.command(args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.t.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode()
}

// answer runs yett on a terminal of its own and types answer once question
// stands there. Where the whole word is asked for, it types no.
func (a account) answer(question, answer string, args ...string) (screen string, code int) {
	a.t.Helper()
	mine, tty, err := openTerminal()
	if err != nil {
		a.t.Fatal(err)
	}
	defer mine.Close()
	c := a.command(args...)
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = c.Start()
	tty.Close()
	if err != nil {
		a.t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { c.Process.Kill() })
	defer stop.Stop()
	var typed, again sync.Once
	var all bytes.Buffer
	buf := make([]byte, 4096)
	for {
		n, err := mine.Read(buf)
		all.Write(buf[:n])
		if strings.Contains(all.String(), question) {
			typed.Do(func() { mine.WriteString(answer + "\n") })
		}
		if strings.Contains(all.String(), "The whole word, please. Type yes: ") {
			again.Do(func() { mine.WriteString("no\n") })
		}
		if err != nil {
			break // everybody has closed the other side
		}
	}
	c.Wait()
	return strings.ReplaceAll(all.String(), "\r\n", "\n"), c.ProcessState.ExitCode()
}

func openTerminal() (mine, tty *os.File, err error) {
	mine, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(mine.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(mine.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return mine, tty, err
}

func (a account) read(below string) string {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.home, below))
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

// TestF1_ConnectShowsItsChangeFirst: the change stands on the screen before the
// question; anything but yes writes nothing, and so does a run without a
// terminal.
func TestF1_ConnectShowsItsChangeFirst(t *testing.T) {
	a := newAccount(t)
	before := "{\n  \"mcpServers\": {}\n}\n"
	path := filepath.Join(a.home, ".claude.json")
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	shim := filepath.Join(a.bin, "yett-mcp")
	for _, answer := range []string{"", "no", "y", "YES"} {
		screen, code := a.answer("Type yes to go on: ", answer, "connect", "claude-code")
		shown, _, asked := strings.Cut(screen, "Type yes to go on: ")
		if code != exitFailed || !asked || !strings.Contains(shown, "+      \"command\": \""+shim+"\"") || !strings.Contains(shown, "--- "+path) {
			t.Errorf("%q: exit %d\n%s", answer, code, screen)
		}
		if asked := strings.Contains(screen, "The whole word, please."); asked != (answer == "y") {
			t.Errorf("%q: asked for the whole word: %v", answer, asked)
		}
	}
	for _, flags := range [][]string{nil, {"--json"}, {"--print"}, {"--allow"}} {
		if out, code := a.run(append([]string{"connect", "claude-code"}, flags...)...); code != exitFailed && len(flags) == 0 || !strings.Contains(out, shim) && (len(flags) == 0 || flags[0] != "--json") {
			t.Errorf("%v: exit %d\n%s", flags, code, out)
		}
	}
	if got := a.read(".claude.json"); got != before {
		t.Fatalf("it was written:\n%s", got)
	}
	if screen, code := a.answer("Type yes to go on: ", "yes", "connect", "claude-code"); code != exitDone || !strings.Contains(screen, "next: start Claude Code again") {
		t.Errorf("exit %d\n%s", code, screen)
	}
	if got := a.read(".claude.json"); !strings.Contains(got, shim) {
		t.Errorf("it is\n%s", got)
	}
	if out, code := a.run("connect", "claude-code"); code != exitDone || !strings.Contains(out, "Nothing to do") {
		t.Errorf("a second time: exit %d\n%s", code, out)
	}
	if out, code := a.run("connect", "claude-code", "--remove", "--yes"); code != exitDone || a.read(".claude.json") != before || strings.Contains(out, "next:") {
		t.Errorf("taken away: exit %d\n%s\n%s", code, out, a.read(".claude.json"))
	}
	if entries, err := os.ReadDir("/nowhere"); err == nil {
		t.Errorf("HOME was believed: %v", entries)
	}
}

// TestConnectRefuses: what is no client, no file of ours, or no program.
func TestConnectRefuses(t *testing.T) {
	a := newAccount(t)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "no client", []string{"connect", "emacs"}},
		{exitUsage, "which client", []string{"connect", "--yes"}},
		{exitFailed, "--home is for tests", []string{"connect", "zed", "--yes", "--home", "/tmp/x"}},
		{exitFailed, "not in a file", []string{"connect", "claude-desktop", "--yes", "--allow"}},
		{exitFailed, "no service manager", []string{"service", "install", "--yes"}},
		{exitDone, "nothing to take away", []string{"connect", "zed", "--remove", "--yes"}},
	} {
		out, code := a.run(c.args...)
		if code != c.code || !strings.Contains(strings.ToLower(out), strings.ToLower(c.says)) {
			t.Errorf("%v: exit %d\n%s", c.args, code, out)
		}
	}
	if err := os.Remove(filepath.Join(a.bin, "yett-mcp")); err != nil {
		t.Fatal(err)
	}
	if out, code := a.run("connect", "zed", "--yes"); code != exitFailed || !strings.Contains(out, "beside yett") {
		t.Errorf("without the shim: exit %d\n%s", code, out)
	}
	if entries, err := os.ReadDir(a.home); err != nil || len(entries) != 0 {
		t.Errorf("something was written: %v, %v", entries, err)
	}
}

// TestUninstallPurges: the data go away by a word that is typed, by no flag,
// and not while a broker has them.
func TestUninstallPurges(t *testing.T) {
	a := newAccount(t)
	phrase, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.WriteString("correct horse battery staple\n")
	w.Close()
	c := a.command("init", "--passphrase-fd", "3")
	c.ExtraFiles = []*os.File{phrase}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, code := a.run("connect", "cursor", "--yes"); code != exitDone {
		t.Fatal(out)
	}
	data := filepath.Join(a.home, ".local/share/yett")
	for _, try := range []func() (string, int){
		func() (string, int) { return a.run("uninstall", "--purge", "--yes") },
		func() (string, int) { return a.run("uninstall", "--purge", "--json", "--yes") },
		func() (string, int) { return a.answer("Type purge to go on: ", "yes", "uninstall", "--purge", "--yes") },
	} {
		if out, code := try(); code != exitFailed || !strings.Contains(out, "Nothing was removed") {
			t.Errorf("exit %d\n%s", code, out)
		}
	}
	serving := a.command("serve")
	serving.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := serving.Start(); err != nil {
		t.Fatal(err)
	}
	defer serving.Process.Kill()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, code := a.run("status"); code == exitDone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the broker does not come up")
		}
	}
	for _, args := range [][]string{{"uninstall", "--yes"}, {"uninstall", "--purge"}} {
		if out, code := a.run(args...); code != exitFailed || !strings.Contains(out, "The broker is running") {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
	}
	if out, code := a.run("stop"); code != exitDone {
		t.Fatal(out)
	}
	serving.Wait()
	if _, err := os.Stat(filepath.Join(data, "vault.yett")); err != nil {
		t.Fatalf("the vault is gone already: %v", err)
	}
	// Neither a configuration that its own client could not read nor a record that
	// Yett cannot keeps anybody from leaving.
	broken := filepath.Join(a.home, ".gemini/settings.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(broken), 0o700), os.WriteFile(broken, []byte("{ not json"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, code := a.run("uninstall", "--yes"); code != exitDone || !strings.Contains(out, "left: Gemini CLI: "+broken) {
		t.Errorf("with a broken configuration: exit %d\n%s", code, out)
	}
	if _, err := os.Lstat(filepath.Join(a.home, ".cursor/mcp.json")); err == nil {
		t.Error("the entry of another client stayed")
	}
	if out, code := a.run("uninstall", "--yes"); code != exitDone || !strings.Contains(out, "There is nothing to take away.") {
		t.Errorf("a second time: exit %d\n%s", code, out)
	}
	record := filepath.Join(a.home, ".local/state/yett/installed.json")
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := a.run("uninstall", "--yes"); code != exitFailed || !strings.Contains(out, record) {
		t.Errorf("with a broken record: exit %d\n%s", code, out)
	}
	screen, code := a.answer("Type purge to go on: ", "purge", "uninstall", "--purge")
	if code != exitDone || !strings.Contains(screen, "every credential") || !strings.Contains(screen, record+" cannot be read") {
		t.Errorf("exit %d\n%s", code, screen)
	}
	for _, below := range []string{".local/share/yett", ".local/state/yett", ".cursor/mcp.json"} {
		if _, err := os.Lstat(filepath.Join(a.home, below)); err == nil {
			t.Errorf("%s is left", below)
		}
	}
}
