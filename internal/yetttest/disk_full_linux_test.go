package yetttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// A small file system of the account, which root mounts before it changes to
// the account. In a user namespace of its own the account could mount one too,
// but there nothing above it belongs to root, and no vault is made below what
// belongs to nobody known.
const (
	smallDisk     = "small"
	smallDiskSize = 24 << 20
)

var smallDiskAt string

func mountSmallDisk(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	at := filepath.Join(dir, smallDisk)
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	err := unix.Mount("tmpfs", at, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%[2]d", smallDiskSize, AccountID))
	if errors.Is(err, unix.EPERM) { // root of a container
		return os.Remove(at)
	}
	smallDiskAt = at
	return err
}

// unmountSmallDisk also removes what could not be while it was mounted.
func unmountSmallDisk() {
	if smallDiskAt != "" {
		unix.Unmount(smallDiskAt, unix.MNT_DETACH)
		os.Remove(smallDiskAt)
		os.Remove(filepath.Dir(smallDiskAt))
	}
}

// fill takes what room there is; empty gives it back.
func fill(t *testing.T, file string) (empty func()) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	must(t, err)
	defer f.Close()
	for piece := make([]byte, 256<<10); ; {
		if _, err := f.Write(piece); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() { must(t, os.Remove(file)) }
}

// TestA01_DiskFullWhileServing: a broker that finds no room says so at once and
// by name, does nothing that it cannot record, can be read, locked and stopped,
// and goes on by itself when there is room again. On a full disk the database
// does not follow, and the journal, which has its room beforehand, still takes
// what has happened. Under a limit on the size of its files, which an ordinary
// account can set too, neither can be written.
func TestA01_DiskFullWhileServing(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		at := Bin(smallDisk)
		if _, err := os.Stat(at); err != nil {
			t.Skip("needs root, to mount a small disk")
		}
		t.Setenv("TMPDIR", at) // where homes are made
		s := serveUntilFull(t, "no room left")
		s.fill = func() func() { return fill(t, filepath.Join(at, "ballast")) }
		s.play()
	})
	t.Run("limit", func(t *testing.T) {
		s := serveUntilFull(t, "a limit on the size of files")
		s.fill = func() func() {
			pid := uint32(s.b.PID())
			limitFileSize(pid, 4096)
			return func() { limitFileSize(pid, unix.RLIM_INFINITY) }
		}
		s.play()
	})
}

// crowded is a broker that room is taken from and given back to.
type crowded struct {
	t        *testing.T
	b        *Broker
	c        *Channel
	up       *Upstream
	cause    string
	fill     func() (empty func())
	done     int           // actions that were answered as done
	quickest time.Duration // of the first answers that refuse; each may meet a busy machine
}

func serveUntilFull(t *testing.T, cause string) *crowded {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	return &crowded{t: t, b: b, c: b.Granted("http:demo.read", "http:demo.write"), up: up, cause: cause, quickest: Patience}
}

func (s *crowded) act() (code string) {
	s.t.Helper()
	r := s.c.Act("http:demo.write", map[string]any{"method": "POST", "path": fmt.Sprintf("/v1/%d", s.done+1)})
	if r.Code() == "" {
		s.done++
	}
	return r.Code()
}

func (s *crowded) untilFull() {
	s.t.Helper()
	for deadline := time.Now().Add(Patience); ; {
		begun := time.Now()
		switch code := s.act(); {
		case code == wire.CodeLedgerUnavailable:
			s.quickest = min(s.quickest, time.Since(begun))
			return
		case code != "" || time.Now().After(deadline):
			s.t.Fatalf("without room: %q", code)
		}
	}
}

// untilRoom only asks for the status, which writes no row: every row, also that
// of an action that is refused, would be a try to write.
func (s *crowded) untilRoom() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	conn := s.dial(ctx)
	defer conn.Close()
	for st := (wire.Status{}); st.Ledger != "ok"; time.Sleep(20 * time.Millisecond) {
		if err := conn.Call(ctx, wire.MethodBrokerStatus, managed(s.t, wire.Empty{}, nil), &st); err != nil {
			s.t.Fatalf("it did not go on by itself: %q, %v", st.Ledger, err)
		}
	}
	if code := s.act(); code != "" {
		s.t.Fatalf("with room again: %q", code)
	}
}

func (s *crowded) dial(ctx context.Context) *client.Conn {
	s.t.Helper()
	conn, err := client.DialLocation(ctx, s.b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	must(s.t, err)
	return conn
}

func (s *crowded) play() {
	t := s.t
	t.Helper()
	if code := s.act(); code != "" {
		t.Fatal(code)
	}
	s.read()
	s.lock()
	s.stop()
	s.count()
}

func (s *crowded) read() {
	t := s.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Patience)
	defer cancel()
	reader := s.dial(ctx)
	defer reader.Close()
	s.b.reading(reader) // to open reading is an act that is recorded
	empty := s.fill()
	s.untilFull()
	var st wire.Status
	if s.b.RunPlain("status", "--json").JSON(t, &st); !strings.Contains(st.Ledger, s.cause) {
		t.Errorf("status does not name it: %+v", st)
	}
	var rows wire.List[Row]
	must(t, reader.Call(ctx, wire.MethodActivityList, managed(t, wire.ActivityList{From: 1, Limit: 500}, nil), &rows))
	if len(rows.Items) < min(2*s.done-1, 500) { // an outcome may be waiting
		t.Errorf("%d rows can be read", len(rows.Items))
	}
	if r := s.c.Call(wire.MethodAccessList, s.c.Next(nil)); r.Code() != "" {
		t.Errorf("access.list: %q", r.Code())
	}
	empty()
	s.untilRoom()
}

func (s *crowded) lock() {
	t := s.t
	t.Helper()
	empty := s.fill()
	s.untilFull()
	if err := s.b.try(wire.MethodVaultLock, wire.Empty{}); err != nil {
		t.Errorf("it was not locked: %v", err)
	}
	if r := s.c.Act("http:demo.read", readX); r.Code() == "" {
		t.Error("it acted after a lock")
	}
	empty()
	s.b.Unlock()
	s.c = s.b.Granted("http:demo.write")
	s.untilRoom()
}

func (s *crowded) stop() {
	t := s.t
	t.Helper()
	empty := s.fill()
	s.untilFull()
	begun := time.Now()
	if s.b.Stop(); time.Since(begun) > 5*time.Second {
		t.Errorf("it ended after %v", time.Since(begun))
	}
	empty()
	s.b.Serve()
	s.b.Unlock()
	s.c = s.b.Granted("http:demo.write")
	s.untilRoom()
}

// count holds what was answered, what the API saw and what is recorded against
// each other.
func (s *crowded) count() {
	t, b := s.t, s.b
	t.Helper()
	if s.quickest > time.Second {
		t.Errorf("it was refused after %v", s.quickest)
	}
	if seen := s.up.Seen(); len(seen) != s.done {
		t.Errorf("the API saw %d actions, %d were answered", len(seen), s.done)
	}
	intents := 0
	for _, r := range b.Activity() {
		if r.Kind == "intent" {
			intents++
		}
	}
	if intents != s.done {
		t.Errorf("%d intents, %d actions", intents, s.done)
	}
	b.Stop()
	v, err := vault.Load(b.Home)
	must(t, err)
	must(t, v.Unlock(vault.SlotPassphrase, template.keys.Unlock))
	defer v.Lock()
	b.wantGoodLedger(v)
}
