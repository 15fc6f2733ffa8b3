package yetttest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBrokerMemoryIsShut: a program of the same account cannot read the
// broker's memory, its environment or where its memory lies, cannot trace it,
// and finds no core file of it.
func TestBrokerMemoryIsShut(t *testing.T) {
	b := New(t)
	b.Env = []string{"GOTRACEBACK=crash", "TOKEN=" + canary}
	dir := t.TempDir()
	t.Chdir(dir) // where a core file would come to lie
	b.Serve()
	b.Unlock()
	b.Apply(demoAccess)
	b.SetSecret("demo", canary)
	pid := b.PID()
	for _, name := range []string{"mem", "environ", "maps", "auxv", "fd/0", "exe", "cwd"} {
		path := fmt.Sprintf("/proc/%d/%s", pid, name)
		_, err := os.ReadFile(path)
		if name == "exe" || name == "cwd" {
			_, err = os.Readlink(path)
		}
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", path, err)
		}
	}
	local := unix.Iovec{Base: new(byte), Len: 1}
	if _, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("reading the broker's memory: %v", err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	must(t, err)
	for line := range strings.Lines(string(limits)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && (f[4] != "0" || f[5] != "0") {
			t.Errorf("core files are on: %s", line)
		}
	}
	if err := unix.PtraceSeize(pid); !errors.Is(err, unix.EPERM) {
		t.Fatalf("tracing the broker: %v", err) // a traced one would stop at the next signal
	}

	must(t, b.cmd.Process.Signal(syscall.SIGABRT))
	b.cmd.Wait()
	status := b.cmd.ProcessState.Sys().(syscall.WaitStatus)
	b.cmd = nil
	if status.CoreDump() {
		t.Error("the kernel wrote a core file")
	}
	for _, d := range []string{dir, b.Home} {
		must(t, filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			if err == nil && strings.HasPrefix(e.Name(), "core") {
				t.Errorf("a core file: %s", path)
			}
			return err
		}))
	}
	secrets := canaries{}
	secrets.add("the value", canary)
	if !strings.Contains(b.log.String(), "goroutine") {
		t.Error("the aborted broker left no trace: the test proves nothing about it")
	}
	secrets.search(t, "what the aborted broker printed", []byte(b.log.String()))
}

// TestVaultCanary: every passphrase, code and value that the vault's commands
// take, in what is left of them: the vault, its previous generation, backups,
// files set aside, files of a killed writer, what was printed, the arguments
// and the environment of every process.
func TestVaultCanary(t *testing.T) {
	stop := watchProcesses(t)
	secrets := canaries{}
	old, next, third := "old horse "+randomText(t), "new horse "+randomText(t), "third horse "+randomText(t)
	value, wrong := "tok+/"+randomText(t), "wrong horse "+randomText(t)
	for name, s := range map[string]string{"old passphrase": old, "new passphrase": next, "third passphrase": third, "value": value, "wrong passphrase": wrong} {
		secrets.add(name, s)
	}
	b := New(t)
	must(t, os.RemoveAll(b.Home))
	backups := t.TempDir()
	var codes []string
	with := func(code bool, exit int, secretArgs []secretArg, args ...string) {
		t.Helper()
		r, recovery := b.runSecrets(code, secretArgs, args...)
		wantExit(t, r, exit)
		if code && recovery != "" {
			codes = append(codes, recovery)
			secrets.add(fmt.Sprintf("code %d", len(codes)), recovery)
			secrets.add(fmt.Sprintf("code %d without dashes", len(codes)), strings.ReplaceAll(recovery, "-", ""))
		}
	}
	with(true, 0, pass(old), "init")
	b.Serve()
	with(false, 3, pass(wrong), "unlock")
	with(false, 0, pass(old), "unlock")
	access := filepath.Join(backups, "access.toml")
	must(t, os.WriteFile(access, []byte(demoAccess), 0o600))
	with(false, 0, pass(old), "apply", access)
	wantExit(t, b.RunWith(value, old, "secret", "set", "demo"), 0)
	with(false, 0, pass(old), "vault", "backup", filepath.Join(backups, "first"))
	with(true, 0, pass(old), "vault", "recovery-code")
	with(true, 3, pass(wrong), "vault", "recovery-code")
	with(false, 3, passAndNew(wrong, next), "vault", "passphrase")
	with(false, 0, passAndNew(old, next), "vault", "passphrase")
	b.RunPlain("lock")
	with(true, 0, passAndNew(codes[1], third), "vault", "recover")
	with(false, 0, pass(third), "vault", "backup", filepath.Join(backups, "second"))
	with(false, 3, pass(wrong), "unlock", "--recovery")
	b.Stop()
	with(false, 1, pass(old), "vault", "restore", access)
	with(false, 3, []secretArg{{"--passphrase-fd", old}, {"--present-passphrase-fd", wrong}}, "vault", "restore", filepath.Join(backups, "first"), "--older")
	with(false, 0, []secretArg{{"--passphrase-fd", old}, {"--present-passphrase-fd", third}}, "vault", "restore", filepath.Join(backups, "first"), "--older")

	// A writer that was killed in front of its rename leaves its file: the link
	// to the generation before is made once the new file is written.
	in := b.serveInjected()
	with(false, 0, pass(old), "unlock")
	in.arm(fault{first: "link", kill: true})
	b.RunWith(value, old, "secret", "rotate", "demo")
	in.disarm()
	b.cmd.Wait()
	b.cmd = nil

	names := strings.Join(append(secrets.searchFiles(t, b.Home), secrets.searchFiles(t, backups)...), " ") + " "
	for _, want := range []string{"vault.yett ", "vault.yett.prev ", "vault.yett.replaced-", ".vault.yett.tmp-", "first ", "second ", "ledger.db "} {
		if !strings.Contains(names, want) {
			t.Errorf("%s was not among %s", want, names)
		}
	}
	processes := stop()
	for _, want := range []string{"vault\x00passphrase\x00", "vault\x00recover\x00", "--new-passphrase-fd\x004"} {
		if !bytes.Contains(processes, []byte(want)) {
			t.Errorf("no process with %q was seen", want)
		}
	}
	secrets.search(t, "the arguments or environment of a process", processes)
	secrets.search(t, "what was printed", b.Printed())
	secrets.search(t, "the broker's log", []byte(b.log.String()))
	if len(codes) != 4 || len(secrets) < 10 {
		t.Errorf("%d codes, %d canaries", len(codes), len(secrets))
	}
}
