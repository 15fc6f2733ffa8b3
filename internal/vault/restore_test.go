package vault

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/durable"
)

func restoreError(v *Vault, dir string) error {
	_, err := v.Restore(dir)
	return err
}

func rolledBack(v *Vault) bool {
	older, _ := v.RolledBack()
	return older
}

func TestBackupAndRestore(t *testing.T) {
	v, m := withSecrets(t)
	path := filepath.Join(t.TempDir(), "copy")
	must(t, WriteBackup(path, v.Image()))
	taken := v.Generation()
	must(t, v.RemoveSecret(api.Name))
	must(t, v.SetLedgerHead([]byte("later")))
	late := v.Generation()
	image := v.Image()

	b, err := ReadBackup(path)
	must(t, err)
	wantErr(t, restoreError(b, v.dir), ErrLocked)
	must(t, b.Unlock(SlotPassphrase, m.pass.Unlock))
	defer b.Lock()
	wantErr(t, b.SetLedgerHead([]byte("x")), errNowhere)
	r, err := b.Restore(v.dir)
	must(t, err)
	if r.Backup != taken || r.Replaced != late || r.Generation != late+1 {
		t.Errorf("%+v, taken at %d, replaced %d", r, taken, late)
	}
	if aside, err := os.ReadFile(r.Aside); err != nil || !bytes.Equal(aside, image) || filepath.Dir(r.Aside) != v.dir {
		t.Errorf("the replaced vault is not kept: %s, %v", r.Aside, err)
	}
	w := loadUnlocked(t, v.dir, m)
	wantValue(t, w, api, "token-0123456789")
	if w.Generation() != late+1 || rolledBack(w) {
		t.Errorf("generation %d after %d, rolled back %v", w.Generation(), late, rolledBack(w))
	}
	wantErr(t, v.SetLedgerHead([]byte("x")), ErrChanged)
	if notes, err := b.Unrecorded(); err != nil || len(notes) != 0 {
		t.Errorf("the backup itself has notes %v, %v", notes, err)
	}
}

// What was restored is told until it has been recorded, through later saves and
// starts, and then no longer.
func TestRestoreIsNoted(t *testing.T) {
	v, m := withSecrets(t)
	b, err := openImage(v.Image(), m)
	must(t, err)
	defer b.Lock()
	must(t, v.SetLedgerHead([]byte("later")))
	must(t, restoreError(b, v.dir))
	w := loadUnlocked(t, v.dir, m)
	must(t, w.SetLedgerHead([]byte("a save in between")))
	w = loadUnlocked(t, v.dir, m)
	notes, err := w.Unrecorded()
	must(t, err)
	if len(notes) != 1 || notes[0].Kind != NoteRestored || notes[0].Backup != b.Generation() || notes[0].Replaced != v.Generation() || !notes[0].Older() {
		t.Fatalf("notes %+v", notes)
	}
	must(t, w.Recorded(notes))
	for _, x := range []*Vault{w, loadUnlocked(t, v.dir, m)} {
		if notes, err = x.Unrecorded(); err != nil || len(notes) != 0 {
			t.Errorf("notes after they were recorded: %v, %v", notes, err)
		}
	}
	for i := range maxNotes + 3 { // bounded, the newest stay
		c := w.open.content
		c.addNote(Note{Backup: uint64(i)})
		if len(c.Unrecorded) > maxNotes || c.Unrecorded[len(c.Unrecorded)-1].Backup != uint64(i) {
			t.Fatalf("%d notes", len(c.Unrecorded))
		}
	}
}

func TestRestoreInPlaceOfWhatIsGone(t *testing.T) {
	v, m := withSecrets(t)
	b, err := openImage(v.Image(), m)
	must(t, err)
	defer b.Lock()
	path := filepath.Join(v.dir, FileName)

	// Damaged; its previous generation still says how far it was.
	must(t, v.SetLedgerHead([]byte("x")))
	must(t, v.SetLedgerHead([]byte("y")))
	must(t, os.WriteFile(path, []byte("rubbish"), 0o600))
	r, err := b.Restore(v.dir)
	must(t, err)
	if kept, err := os.ReadFile(r.Aside); err != nil || string(kept) != "rubbish" || r.Replaced != 0 {
		t.Errorf("%+v: %q, %v", r, kept, err)
	}
	w := loadUnlocked(t, v.dir, m)
	wantValue(t, w, api, "token-0123456789")
	if w.Generation() != v.Generation() { // one after the previous
		t.Errorf("generation %d, the vault was at %d", w.Generation(), v.Generation())
	}

	fresh := filepath.Join(t.TempDir(), "new")
	r, err = b.Restore(fresh)
	must(t, err)
	if r.Aside != "" || r.Replaced != 0 {
		t.Errorf("%+v", r)
	}
	wantValue(t, loadUnlocked(t, fresh, m), api, "token-0123456789")

	// Nothing is written over what is no vault file of ours.
	must(t, os.Remove(path))
	must(t, os.Symlink("/dev/null", path))
	wantErr(t, restoreError(b, v.dir), durable.ErrUnsafe)
}

func TestRestoreFails(t *testing.T) {
	v, m := withSecrets(t)
	b, err := openImage(v.Image(), m)
	must(t, err)
	defer b.Lock()
	must(t, v.RemoveSecret(api.Name))
	before, err := os.ReadFile(filepath.Join(v.dir, FileName))
	must(t, err)
	defer func() { writeFile = durable.WriteFile }()
	writeFile = func(string, []byte, bool) error { return syscall.ENOSPC }
	wantErr(t, restoreError(b, v.dir), syscall.ENOSPC)
	if now, err := os.ReadFile(filepath.Join(v.dir, FileName)); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the vault that was there is gone: %v", err)
	}
}

func TestBackupFile(t *testing.T) {
	v, _ := withSecrets(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "copy")
	old := syscall.Umask(0)
	err := WriteBackup(path, v.Image())
	syscall.Umask(old)
	must(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	wantErr(t, WriteBackup(path, v.Image()), fs.ErrExist)
	target := filepath.Join(dir, "target")
	must(t, os.Symlink(target, filepath.Join(dir, "link"))) // not followed, though it leads nowhere yet
	wantErr(t, WriteBackup(filepath.Join(dir, "link"), v.Image()), fs.ErrExist)
	if _, err := os.Lstat(target); err == nil {
		t.Error("a link was followed")
	}
	wantErr(t, WriteBackup(filepath.Join(dir, "other"), v.Image()[:200]), ErrDamaged)
	if names := namesIn(t, dir); strings.Join(names, " ") != "copy link" {
		t.Errorf("the directory holds %v", names)
	}

	// A backup that went over a stick has lost its mode, not its content.
	must(t, os.Chmod(path, 0o755))
	if b, err := ReadBackup(path); err != nil || b.Generation() != v.Generation() {
		t.Errorf("reading it back: %v", err)
	}
	image := v.Image()
	image[len(image)/2] ^= 1
	must(t, os.WriteFile(path, image, 0o600))
	_, err = ReadBackup(path)
	wantErr(t, err, ErrDamaged)
	must(t, os.Truncate(path, maxFile+1))
	_, err = ReadBackup(path)
	wantErr(t, err, ErrDamaged)
	for _, p := range []string{dir, "/dev/zero", filepath.Join(dir, "none")} {
		if _, err := ReadBackup(p); err == nil {
			t.Errorf("%s was read as a backup", p)
		}
	}
	if _, err := Parse(nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("nothing at all: %v", err)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
