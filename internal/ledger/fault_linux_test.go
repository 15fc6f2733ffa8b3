package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/action"
	"golang.org/x/sys/unix"
)

// TestA01_NoIntentNoAction lets the process' files grow no further.
func TestA01_NoIntentNoAction(t *testing.T) {
	in := newInstallation(t)
	mustRun(t, in.command("full file"))
	l := in.open(t)
	if i, _ := l.Recovered(); i != 0 {
		t.Fatalf("%d operations were left open", i)
	}
	l.Close()
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Fatal(r.Problems)
	}
}

func limitFiles(bytes uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	l.Cur = min(bytes, l.Max)
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &l)
}

func playFullFile(open func() *Ledger) error {
	l := open()
	running, refused := newOperation(), newOperation()
	if _, err := l.Begin(background, running, row("intent"), nil); err != nil {
		return err
	}
	before, _ := l.Entries()
	if err := limitFiles(4096); err != nil {
		return err
	}
	if _, err := l.Begin(background, refused, row("intent"), nil); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("an intent that cannot be written: %v", err)
	}
	if _, ok, err := l.Operation(refused.ID); ok || err != nil {
		return fmt.Errorf("the refused operation exists: %v, %v", ok, err)
	}
	if err := l.Healthy(); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("healthy although nothing can be written: %v", err)
	}
	// The action of the other one did happen; its outcome finds no room.
	if err := <-l.End(running.ID, action.Completed, "", row("outcome")); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("an outcome that cannot be written: %v", err)
	}
	l.AppendSoon(row("soon"))
	if err := l.Healthy(); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("healthy in spite of a lost outcome: %v", err)
	}
	if err := l.Probe(background); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("probe: %v", err)
	}
	if err := limitFiles(unix.RLIM_INFINITY); err != nil {
		return err
	}
	return resumed(l, running.ID, refused, before)
}

// resumed is what has to hold when there is room again: what happened is
// recorded late, and new actions go on.
func resumed(l *Ledger, running string, refused Operation, before int64) error {
	if err := l.Probe(background); err != nil {
		return fmt.Errorf("probe with room: %w", err)
	}
	if err := l.Healthy(); err != nil {
		return err
	}
	if op, _, err := l.Operation(running); err != nil || op.State != action.Completed {
		return fmt.Errorf("the outcome was lost: %+v, %v", op, err)
	}
	if n, _ := l.Entries(); n != before+3 { // outcome, soon, ledger_resumed
		return fmt.Errorf("%d entries after %d", n, before)
	}
	if _, err := l.Begin(background, refused, row("intent"), nil); err != nil {
		return err
	}
	return errors.Join(<-l.End(refused.ID, action.Completed, "", row("outcome")), l.Close())
}

// TestA01_UnhealthyTakesNoNewActions: after an outcome that could not be
// written a new intent is refused even though it could be.
func TestA01_UnhealthyTakesNoNewActions(t *testing.T) {
	l := newInstallation(t).open(t)
	l.w.mu.Lock()
	l.w.sick = ErrUnavailable
	l.w.mu.Unlock()
	op := newOperation()
	if _, err := l.Begin(t.Context(), op, row("intent"), nil); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("an unhealthy ledger took an intent: %v", err)
	}
	if _, ok, _ := l.Operation(op.ID); ok {
		t.Fatal("the operation exists")
	}
}

// TestA01_DiskFull fills a real file system.
func TestA01_DiskFull(t *testing.T) {
	in := newInstallation(t)
	in.dir = filepath.Join(t.TempDir(), "mount")
	if err := os.Mkdir(in.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := in.command("full disk")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	mustRun(t, cmd)
}

func playFullDisk(open func() *Ledger) error {
	if err := unix.Mount("tmpfs", os.Args[1], "tmpfs", 0, "size=20m,mode=0700"); err != nil {
		return err
	}
	ballast := filepath.Join(os.Args[1], "ballast")
	if err := os.WriteFile(ballast, make([]byte, 12<<20), 0o600); err != nil {
		return err
	}
	l := open()
	running := newOperation()
	if _, err := l.Begin(background, running, row("intent"), nil); err != nil {
		return err
	}
	written := int64(1)
	for {
		n, err := l.Append(background, Row{Kind: "filler", Claimed: []byte(`"` + strings.Repeat("x", 3000) + `"`)})
		if errors.Is(err, ErrUnavailable) && strings.Contains(err.Error(), "no room left") {
			break
		} else if err != nil {
			return fmt.Errorf("the cause is not clear: %w", err)
		}
		written = n
	}
	if n, _ := l.Entries(); n != written {
		return fmt.Errorf("%d entries, %d were written", n, written)
	}
	if err := l.Healthy(); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("healthy on a full disk: %v", err)
	}
	// What is in the journal can be read; what is under way may still find
	// room there.
	if _, ok, err := l.Operation(running.ID); !ok || err != nil {
		return fmt.Errorf("reading on a full disk: %v, %v", ok, err)
	}
	if err := <-l.End(running.ID, action.Completed, "", row("outcome")); err != nil && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("an outcome without room: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	if err := l.Probe(background); err != nil {
		return fmt.Errorf("probe with room: %w", err)
	}
	if op, _, err := l.Operation(running.ID); err != nil || op.State != action.Completed {
		return fmt.Errorf("the outcome was lost: %+v, %v", op, err)
	}
	if _, err := l.Begin(background, newOperation(), row("intent"), nil); err != nil {
		return err
	}
	return l.Close()
}

// TestReadOnlyDirectory runs as an ordinary account, since root may write
// everywhere.
func TestReadOnlyDirectory(t *testing.T) {
	in := newInstallation(t)
	parent, err := os.MkdirTemp("", "ledger")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	in.dir = filepath.Join(parent, "yett")
	for _, d := range []string{parent, in.dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := in.command("readonly")
	if os.Geteuid() == 0 {
		if err := os.Chown(in.dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	mustRun(t, cmd)
}

func playReadOnly(open func() *Ledger) error {
	l := open()
	if _, err := l.Append(background, row("one")); err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	if err := os.Chmod(os.Args[1], 0o500); err != nil {
		return err
	}
	for _, name := range []string{"ledger.db", "ledger.lock"} {
		if err := os.Chmod(filepath.Join(os.Args[1], name), 0o400); err != nil {
			return err
		}
	}
	if _, err := Open(os.Args[1], Options{AuditPublicKey: make([]byte, 32)}); !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("opening a read-only ledger: %v", err)
	}
	r, err := Verify(background, os.Args[1], nil, nil)
	if err != nil || !r.OK || r.Entries != 1 {
		return fmt.Errorf("verifying a read-only ledger: %+v, %w", r, err)
	}
	return os.Chmod(os.Args[1], 0o700)
}
