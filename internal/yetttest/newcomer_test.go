package yetttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// TestClosedDescriptorIsNoPassphrase: a descriptor that nobody left open is not
// taken for one, even where the runtime has a file of its own under its number.
func TestClosedDescriptorIsNoPassphrase(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	for _, fd := range []string{"3", "4", "5", "6", "7", "9"} {
		out, err := exec.Command(Bin("yett"), "init", "--home", home, "--passphrase-fd", fd, "--json").CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "is not open") {
			t.Errorf("descriptor %s: %v %s", fd, err, out)
		}
		if _, err := os.Lstat(home); err == nil {
			t.Fatalf("descriptor %s: a vault was made", fd)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.WriteString(Passphrase + "\n")
	w.Close()
	for _, recovery := range []string{"3", "5", "7"} { // 3 is open, for reading only
		c := exec.Command(Bin("yett"), "init", "--home", home, "--passphrase-fd", "3", "--recovery-fd", recovery, "--json")
		c.ExtraFiles = []*os.File{r}
		out, err := c.CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
			t.Errorf("recovery to descriptor %s: %v %s", recovery, err, out)
		}
		if _, err := os.Lstat(home); err == nil {
			t.Fatalf("recovery to descriptor %s: a vault was made and its code is lost", recovery)
		}
	}
	out, err := exec.Command(Bin("yett"), "status", "--home", "", "--json").CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "--home is empty") {
		t.Errorf("an empty home: %v %s", err, out)
	}
}

// TestOwnDescriptorIsNoPassphrase: once the command has connected, descriptors
// of its own lie under the next numbers; none of them is read.
func TestOwnDescriptorIsNoPassphrase(t *testing.T) {
	b := New(t)
	b.Serve()
	for fd := 3; fd < 12; fd++ {
		if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0); errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			continue // whoever runs the tests left it open for us too
		}
		out, err := exec.Command(Bin("yett"), "unlock", "--home", b.Home, "--passphrase-fd", strconv.Itoa(fd), "--json").CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "is not open") {
			t.Errorf("descriptor %d: %v %s", fd, err, out)
		}
	}
	b.Unlock()
	for _, row := range b.Activity() {
		if row.Kind == "unlock.refused" {
			t.Error("a descriptor of the command's own counted as a wrong passphrase")
		}
	}
}

// TestApplySaysWhatIsLost: before the proof, and also in a dry run.
func TestApplySaysWhatIsLost(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	moved := strings.Replace(up.Access(), up.URL, "http://127.0.0.1:1", 1)
	f := filepath.Join(t.TempDir(), "access.toml")
	for file, why := range map[string]string{moved: "it was sealed to", "# nothing\n": "declares it no longer"} {
		if err := os.WriteFile(f, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		var dry struct {
			Applied    bool
			Difference string
			Voided     []string
		}
		b.RunPlain("apply", f, "--dry-run", "--json").JSON(t, &dry)
		if dry.Applied || len(dry.Voided) != 1 || dry.Voided[0] != "demo" || !strings.Contains(dry.Difference, why) {
			t.Errorf("a dry run says %+v, want %q", dry, why)
		}
	}
	var out struct{ Voided []string }
	b.Must("apply", f, "--json").JSON(t, &out)
	if len(out.Voided) != 1 {
		t.Errorf("applied: %+v", out)
	}
	if r := b.RunPlain("apply", f); r.Code != 0 || !strings.Contains(r.Stdout, "Nothing changes") {
		t.Errorf("applying the same again needs a proof: %+v", r)
	}
}

// TestUnusableValueDoesNotReplaceOne: a key that is none is refused before it
// takes the place of one that works.
func TestUnusableValueDoesNotReplaceOne(t *testing.T) {
	sshd := reachableSSHD(t)
	b := Start(t, `
[credential.key]
kind = "ssh-key"

[host.h]
address = "`+sshd.Address+`"
user = "`+sshd.User+`"
key = "key"
host_keys = ["`+sshd.HostKey+`"]

[capability."ssh:h.run"]
host = "h"
commands = ["echo *"]
`, "key", string(sshd.ClientKey))
	for _, bad := range []string{sshd.HostKey, "not a key at all", string(sshd.ClientKey[:len(sshd.ClientKey)/2])} {
		r := b.RunWith(bad, Passphrase, "secret", "rotate", "key", "--json")
		if msg := wantRefusal(t, r, 1, wire.CodeBadRequest); strings.Contains(msg, bad) {
			t.Errorf("the message repeats the value: %s", msg)
		}
	}
	c := b.Granted("ssh:h.run")
	op := c.MustAct("ssh:h.run", map[string]any{"argv": []string{"echo", "still"}})
	if op.State != "completed" || !strings.Contains(string(op.Result), `"status":0`) {
		t.Fatalf("%+v %s", op, op.Result)
	}
}

// TestApplyTakesBackWhatReadsDifferently: a grant covers what its card said. A
// capability that says something else now must be asked for again, and a card
// that waits for it is void; the others stay.
func TestApplyTakesBackWhatReadsDifferently(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read", "http:demo.write")
	waiting := b.Open()
	waiting.OpenSession("http:demo.read")
	b.WaitCard()
	b.Apply(strings.Replace(up.Access(), `methods = ["GET", "HEAD"]`, `methods = ["GET", "HEAD", "DELETE"]`, 1))
	for _, method := range []string{"GET", "DELETE"} {
		op := c.MustAct("http:demo.read", map[string]any{"method": method, "path": "/v1/x"})
		if op.State != "denied" || op.Reason.Code != wire.ReasonCapabilityNotGranted {
			t.Errorf("%s under the old grant: %+v", method, op)
		}
	}
	if op := c.MustAct("http:demo.write", map[string]any{"method": "POST", "path": "/v1/x"}); op.State != "completed" {
		t.Errorf("what was not changed: %+v", op)
	}
	if cards := b.Pending(); len(cards) != 0 {
		t.Errorf("%d cards of the old text still wait", len(cards))
	}
}
