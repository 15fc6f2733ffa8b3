package vault

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/durable"
)

func TestV05_ChangedFromOutside(t *testing.T) {
	v, m := withSecrets(t)
	path := filepath.Join(v.dir, FileName)
	info, err := os.Stat(path)
	must(t, err)

	// Another writer saves: same size, and made to have the same times.
	w := loadUnlocked(t, v.dir, m)
	must(t, w.SetSecret(api.Name, []byte("token-9876543210"), true))
	must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	theirs := readDir(t, v.dir)

	wantErr(t, v.SetSecret(api.Name, []byte("token-mine-mine-"), true), ErrChanged)
	if now := readDir(t, v.dir); !bytes.Equal(now[FileName], theirs[FileName]) {
		t.Error("the other writer's save was overwritten")
	}
	wantValue(t, v, api, "token-0123456789") // memory did not run ahead of the disk
	wantValue(t, loadUnlocked(t, v.dir, m), api, "token-9876543210")

	// An older generation synced back is no better.
	old := theirs[FileName+durable.Previous]
	must(t, os.WriteFile(path, old, 0o600))
	wantErr(t, w.SetLedgerHead([]byte("x")), ErrChanged)
	must(t, os.Remove(path))
	wantErr(t, w.SetLedgerHead([]byte("x")), ErrChanged)
	if _, err := os.Lstat(path); err == nil {
		t.Error("a vault that was taken away was written again")
	}
}

func TestV05_SameGenerationOtherContent(t *testing.T) {
	v, m := newVault(t)
	image := v.Image()
	must(t, v.SetLedgerHead([]byte("mine")))
	b, err := openImage(image, m)
	must(t, err)
	defer b.Lock()
	b.open.content.LedgerHead = []byte("else")
	d := &draft{header: b.file.header, keys: b.open.keys, content: b.open.content}
	d.header.Generation++
	f, err := sealContent(d.header, d.keys, d.content)
	must(t, err)
	if f.header.Generation != v.Generation() || len(f.raw) != len(v.Image()) {
		t.Fatal("the fork is not of the same generation and size")
	}
	must(t, os.WriteFile(filepath.Join(v.dir, FileName), f.raw, 0o600))
	wantErr(t, v.SetLedgerHead([]byte("next")), ErrChanged)
}

func TestV05_RollbackNoticed(t *testing.T) {
	v, m := withSecrets(t)
	if w := loadUnlocked(t, v.dir, m); rolledBack(w) {
		t.Error("an ordinary vault reads as rolled back")
	}
	must(t, os.WriteFile(filepath.Join(v.dir, FileName), m.image, 0o600))
	if w := loadUnlocked(t, v.dir, m); !rolledBack(w) || w.Generation() != 1 {
		t.Errorf("generation %d, rolled back %v", w.Generation(), rolledBack(w))
	}
}

func TestV05_ConflictCopyIgnored(t *testing.T) {
	v, m := withSecrets(t)
	copyPath := filepath.Join(v.dir, "vault (conflict).yett")
	must(t, os.WriteFile(copyPath, m.image, 0o600))
	must(t, v.SetLedgerHead([]byte("x")))
	if w := loadUnlocked(t, v.dir, m); w.Generation() != v.Generation() {
		t.Error("the copy was taken for the vault")
	}
	if b, err := os.ReadFile(copyPath); err != nil || !bytes.Equal(b, m.image) {
		t.Error("the copy was touched")
	}
}

// Two vault values on one directory stand for two processes: flock is by open
// file, not by process. Each save is there afterwards, or its writer was told.
func TestV05_NoSaveIsLost(t *testing.T) {
	v, m := newVault(t)
	names := make([]Declared, 12)
	for i := range names {
		names[i] = Declared{fmt.Sprint("s", i), "bearer", "https://a.example"}
	}
	_, err := v.Apply(nil, names)
	must(t, err)
	var wg sync.WaitGroup
	for _, d := range names {
		wg.Go(func() {
			for {
				w, err := Load(v.dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := w.Unlock(SlotPassphrase, m.pass.Unlock); err != nil {
					t.Error(err)
					return
				}
				err = w.SetSecret(d.Name, []byte("value of "+d.Name), false)
				w.Lock()
				if err == nil {
					return
				}
				if !errors.Is(err, ErrChanged) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	w := loadUnlocked(t, v.dir, m)
	for _, d := range names {
		wantValue(t, w, d, "value of "+d.Name)
	}
}

func TestWriteLockHeld(t *testing.T) {
	v, _ := newVault(t)
	unlock, err := lockDir(v.dir, time.Second)
	must(t, err)
	_, err = lockDir(v.dir, 20*time.Millisecond)
	wantErr(t, err, ErrBusy)
	unlock()
	unlock, err = lockDir(v.dir, 0)
	must(t, err)
	unlock()
}

// A write that fails before the rename changes nothing; one that fails after
// it has happened, and memory follows the disk.
func TestV01_FailedWrite(t *testing.T) {
	v, m := withSecrets(t)
	defer func() { writeFile = durable.WriteFile }()
	before := v.Generation()

	writeFile = func(string, []byte, bool) error { return syscall.ENOSPC }
	wantErr(t, v.SetSecret(api.Name, []byte("token-second"), true), syscall.ENOSPC)
	if v.Generation() != before {
		t.Error("an unsaved change was published")
	}
	wantValue(t, v, api, "token-0123456789")

	writeFile = func(path string, data []byte, keep bool) error { // failed but persisted
		return errors.Join(durable.WriteFile(path, data, keep), syscall.EIO)
	}
	wantErr(t, v.SetSecret(api.Name, []byte("token-second"), true), syscall.EIO)
	writeFile = durable.WriteFile
	wantValue(t, v, api, "token-second")
	must(t, v.SetSecret(api.Name, []byte("token-third-"), true))
	wantValue(t, loadUnlocked(t, v.dir, m), api, "token-third-")
}

// Lock does not wait for a disk, and what was on its way there still counts.
func TestLockWhileSaving(t *testing.T) {
	v, m := withSecrets(t)
	defer func() { writeFile = durable.WriteFile }()
	writing, proceed := make(chan struct{}), make(chan struct{})
	writeFile = func(path string, data []byte, keep bool) error {
		close(writing)
		<-proceed
		return durable.WriteFile(path, data, keep)
	}
	saved := make(chan error)
	go func() { saved <- v.SetSecret(api.Name, []byte("token-second"), true) }()
	<-writing
	wantValue(t, v, api, "token-0123456789") // readers are not held up either
	v.Lock()
	close(proceed)
	must(t, <-saved)
	if !v.Locked() {
		t.Error("a save unlocked the vault")
	}
	must(t, v.Unlock(SlotPassphrase, m.pass.Unlock))
	wantValue(t, v, api, "token-second")
}

func TestConcurrent(t *testing.T) {
	v, m := withSecrets(t)
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := v.Use(api.Name, api, func(s []byte) error {
					if !bytes.HasPrefix(s, []byte("token-")) {
						return errors.New("a value that was never set")
					}
					return nil
				})
				if err != nil && !errors.Is(err, ErrLocked) {
					t.Error(err)
					return
				}
				_ = v.VerifyProof([]byte("m"), Proof(m.pass.Approval, []byte("m")))
				_, _ = v.Subkey("x")
				_, _ = v.Secrets()
				_ = v.Slots()
			}
		})
	}
	writers.Go(func() {
		for i := range 10 {
			if err := v.SetSecret(api.Name, []byte(fmt.Sprintf("token-%08d", i)), true); err != nil && !errors.Is(err, ErrLocked) {
				t.Error(err)
			}
			if err := v.SetSlot(SlotRecovery, m.slotKDF(1), m.recovery); err != nil && !errors.Is(err, ErrLocked) {
				t.Error(err)
			}
		}
	})
	writers.Go(func() {
		for range 50 {
			v.Lock()
			if err := v.Unlock(SlotPassphrase, m.pass.Unlock); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	must(t, v.VerifyProof(nil, Proof(m.recovery.Approval, nil)))
}

func (m made) slotKDF(i int) KDF {
	f, err := parseFile(m.image)
	if err != nil {
		panic(err)
	}
	return f.header.Slots[i].KDF
}

// saverDir names the vault that a helper process saves to until it is killed.
const saverDir, saverKey = "YETT_TEST_VAULT_DIR", "YETT_TEST_VAULT_KEY"

func saveUntilKilled(dir string) int {
	v, err := Load(dir)
	if err == nil {
		err = v.Unlock(SlotPassphrase, []byte(os.Getenv(saverKey)))
	}
	for i := 0; err == nil; i++ {
		if err = v.SetLedgerHead([]byte(strconv.Itoa(i))); err == nil {
			fmt.Println(i)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A writer killed in the middle of its saves loses nothing that it had called
// saved. Where in a save the kill falls is chance here; durable's own tests
// kill at each step.
func TestV01_KilledWhileSaving(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	v, m := withSecrets(t)
	// A key without NUL bytes can travel in the test's environment.
	kdf := NewKDF()
	key := []byte("0123456789abcdef0123456789abcdef")
	must(t, v.SetSlot(SlotPassphrase, kdf, &Keys{Unlock: key, Approval: m.pass.Approval}))

	for round := range 12 {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), saverDir+"="+v.dir, saverKey+"="+string(key))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines, last := bufio.NewScanner(out), ""
		for range 1 + round%4 {
			if !lines.Scan() {
				break
			}
			last = lines.Text()
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() { // saves that it could still report
			last = lines.Text()
		}
		if err := cmd.Wait(); err == nil || stderr.Len() > 0 || last == "" {
			t.Fatalf("the saver ended by itself: %v %s", err, stderr.String())
		}

		w, err := Load(v.dir)
		must(t, err)
		must(t, w.Unlock(SlotPassphrase, key))
		head, err := w.LedgerHead()
		must(t, err)
		said, err1 := strconv.Atoi(last)
		kept, err2 := strconv.Atoi(string(head))
		if err := errors.Join(err1, err2); err != nil || kept < said || kept > said+1 {
			t.Errorf("saved %q, kept %q: %v", last, head, err)
		}
		wantValue(t, w, api, "token-0123456789")
		if _, err := readFile(filepath.Join(v.dir, FileName+durable.Previous)); err != nil {
			t.Errorf("the previous generation: %v", err)
		}
		must(t, w.SetLedgerHead([]byte("-1"))) // goes on, and sweeps
		w.Lock()
		if left, _ := filepath.Glob(filepath.Join(v.dir, ".*")); len(left) > 0 {
			t.Errorf("leftovers %v", left)
		}
	}
}
