package yetttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestA01_DiskFullWhileServing: a broker whose disk gets full says so at once
// and by name, does nothing that it cannot record, can be read, locked and
// stopped, and goes on by itself when there is room again.
func TestA01_DiskFullWhileServing(t *testing.T) {
	at := Bin(smallDisk)
	if _, err := os.Stat(at); err != nil {
		t.Skip("needs root, to mount a small disk")
	}
	t.Setenv("TMPDIR", at) // where homes are made
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read", "http:demo.write")
	done := 0
	act := func() (code string) {
		t.Helper()
		done++
		r := c.Act("http:demo.write", map[string]any{"method": "POST", "path": fmt.Sprintf("/v1/%d", done)})
		if r.Code() != "" {
			done--
		}
		return r.Code()
	}
	quickest := Patience // of the first answers that refuse; each may meet a busy machine
	untilFull := func() {
		t.Helper()
		for deadline := time.Now().Add(Patience); ; {
			begun := time.Now()
			switch code := act(); {
			case code == wire.CodeLedgerUnavailable:
				quickest = min(quickest, time.Since(begun))
				return
			case code != "" || time.Now().After(deadline):
				t.Fatalf("on a full disk: %q", code)
			}
		}
	}
	untilRoom := func() {
		t.Helper()
		for deadline := time.Now().Add(Patience); act() != ""; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it did not go on by itself")
			}
		}
	}

	if code := act(); code != "" {
		t.Fatal(code)
	}
	empty := fill(t, filepath.Join(at, "ballast"))
	untilFull()
	var st wire.Status
	if b.RunPlain("status", "--json").JSON(t, &st); !strings.Contains(st.Ledger, "no room left") {
		t.Errorf("status does not name it: %+v", st)
	}
	if rows := b.Activity(); len(rows) < 2*done {
		t.Errorf("%d rows can be read", len(rows))
	}
	if r := c.Call(wire.MethodAccessList, c.Next(nil)); r.Code() != "" {
		t.Errorf("access.list: %q", r.Code())
	}
	empty()
	untilRoom()

	empty = fill(t, filepath.Join(at, "ballast"))
	untilFull()
	must(t, b.try(wire.MethodVaultLock, wire.Empty{}))
	if r := c.Act("http:demo.read", readX); r.Code() == "" {
		t.Error("it acted after a lock")
	}
	empty()
	b.Unlock()
	c = b.Granted("http:demo.write")
	untilRoom()

	empty = fill(t, filepath.Join(at, "ballast"))
	untilFull()
	begun := time.Now()
	if b.Stop(); time.Since(begun) > 5*time.Second {
		t.Errorf("it ended after %v", time.Since(begun))
	}
	empty()
	b.Serve()
	b.Unlock()
	c = b.Granted("http:demo.write")
	untilRoom()
	if quickest > time.Second {
		t.Errorf("it was refused after %v", quickest)
	}
	if seen := up.Seen(); len(seen) != done {
		t.Errorf("the API saw %d actions, %d were answered", len(seen), done)
	}
	intents := 0
	for _, r := range b.Activity() {
		if r.Kind == "intent" {
			intents++
		}
	}
	if intents != done {
		t.Errorf("%d intents, %d actions", intents, done)
	}
	b.Stop()
	v, err := vault.Load(b.Home)
	must(t, err)
	must(t, v.Unlock(vault.SlotPassphrase, template.keys.Unlock))
	defer v.Lock()
	b.wantGoodLedger(v)
}
