package durable

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestWriteReplacesAndKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for i, data := range []string{"one", "two", "three"} {
		if err := WriteFile(path, []byte(data), true); err != nil {
			t.Fatal(err)
		}
		wantFile(t, path, data)
		if i > 0 {
			wantFile(t, path+Previous, []string{"one", "two", "three"}[i-1])
		}
	}
	if err := WriteFile(path, []byte("four"), false); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "four")
	wantFile(t, path+Previous, "two")
	wantNames(t, path, "f", "f.prev")
}

func TestModeWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o777} {
		path := filepath.Join(t.TempDir(), "f")
		old := syscall.Umask(mask)
		err := errors.Join(WriteFile(path, []byte("one"), true), WriteFile(path, []byte("two"), true))
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{path, path + Previous} {
			info, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o600 {
				t.Errorf("umask %#o: %s has mode %v", mask, filepath.Base(p), info.Mode())
			}
		}
	}
}

func TestRefusesWhatIsNotAFile(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, gone, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "gone"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(target, link), os.Symlink(filepath.Join(dir, "none"), gone), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, gone, fifo, dir} {
		if err := WriteFile(path, []byte("ours"), true); !errors.Is(err, ErrUnsafe) {
			t.Errorf("WriteFile(%s): %v", filepath.Base(path), err)
		}
		if _, err := ReadFile(path, 100); err == nil {
			t.Errorf("ReadFile(%s) succeeded", filepath.Base(path))
		}
	}
	wantFile(t, target, "theirs")
	wantNames(t, target, "fifo", "gone", "link", "target")
}

func TestReadRefusesWhatOthersCanReach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteFile(path, []byte("12345"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("five bytes, four allowed: %v", err)
	}
	if b, err := ReadFile(path, 5); err != nil || string(b) != "12345" {
		t.Errorf("five bytes, five allowed: %q, %v", b, err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path, 5); !errors.Is(err, ErrUnsafe) {
			t.Errorf("mode %#o: %v", mode, err)
		}
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path, 5); !errors.Is(err, ErrUnsafe) {
			t.Errorf("another account's file: %v", err)
		}
	}
}

// TestV01_OrderOfSteps is what a power cut depends on and a killed process
// cannot show: content is on disk before it gets the name, the name before
// WriteFile returns, and the mode is set before there is anything to read.
func TestV01_OrderOfSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteFile(path, []byte("old"), true); err != nil {
		t.Fatal(err)
	}
	d := &faultyDisk{}
	if err := writeFile(d, path, []byte("new"), true); err != nil {
		t.Fatal(err)
	}
	want := []string{"create", "chmod", "write", "sync", "link", "rename-previous", "remove", "rename", "syncdir"}
	if !slices.Equal(d.done, want) {
		t.Errorf("steps are %v, want %v", d.done, want)
	}
}

func TestV01_EveryStepFails(t *testing.T) {
	for _, step := range append(steps, "write-short") {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
			t.Run(step+" "+cause.Error(), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "f")
				if err := errors.Join(WriteFile(path, []byte("older"), true), WriteFile(path, []byte("old"), true)); err != nil {
					t.Fatal(err)
				}
				d := &faultyDisk{fail: step, cause: cause}
				err := writeFile(d, path, []byte("new content"), true)
				if err == nil {
					t.Fatal("no error")
				}
				if step != "write-short" && !errors.Is(err, cause) {
					t.Errorf("error %v does not say %v", err, cause)
				}
				if step == "syncdir" {
					wantFile(t, path, "new content") // in place, only not known to be durable
				} else {
					wantFile(t, path, "old")
				}
				if _, err := os.Stat(path + Previous); err != nil {
					t.Error(err)
				}
				if step != "remove" { // a leftover that cannot be removed stays
					wantNames(t, path, "f", "f.prev")
				}
			})
		}
	}
}

func TestRemoveLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, name := range []string{"f", ".f.tmp-1", ".f.tmp-2", ".g.tmp-1", "f.tmp-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveLeftovers(path); err != nil {
		t.Fatal(err)
	}
	wantNames(t, path, ".g.tmp-1", "f", "f.tmp-1")
}

// faultyDisk is the real disk, which fails, or ends the process, at one step.
type faultyDisk struct {
	realDisk
	fail  string // the step that fails with cause, or "write-short"
	cause error
	kill  string // the step to die at: "before X", "after X", "within write"
	done  []string
}

var steps = []string{"create", "chmod", "write", "sync", "link", "rename-previous", "remove", "rename", "syncdir"}

func (d *faultyDisk) step(name string, do func() error) error {
	d.done = append(d.done, name)
	if d.kill == "before "+name {
		die()
	}
	if d.fail == name {
		return d.cause
	}
	err := do()
	if d.kill == "after "+name {
		die()
	}
	return err
}

func (d *faultyDisk) create(path string) (f *os.File, err error) {
	err = d.step("create", func() (err error) { f, err = d.realDisk.create(path); return err })
	return f, err
}

func (d *faultyDisk) chmod(f *os.File, mode os.FileMode) error {
	return d.step("chmod", func() error { return d.realDisk.chmod(f, mode) })
}

func (d *faultyDisk) write(f *os.File, data []byte) (n int, err error) {
	if d.fail == "write-short" {
		return d.realDisk.write(f, data[:len(data)/2])
	}
	if d.fail == "write" || d.kill == "within write" { // what ENOSPC leaves: some of it
		_, _ = d.realDisk.write(f, data[:len(data)/2])
	}
	if d.kill == "within write" {
		die()
	}
	err = d.step("write", func() (err error) { n, err = d.realDisk.write(f, data); return err })
	return n, err
}

func (d *faultyDisk) sync(f *os.File) error {
	return d.step("sync", func() error { return d.realDisk.sync(f) })
}

func (d *faultyDisk) link(old, new string) error {
	return d.step("link", func() error { return d.realDisk.link(old, new) })
}

func (d *faultyDisk) rename(old, new string) error {
	name := "rename"
	if strings.HasSuffix(new, Previous) {
		name = "rename-previous"
	}
	return d.step(name, func() error { return d.realDisk.rename(old, new) })
}

func (d *faultyDisk) remove(path string) error {
	return d.step("remove", func() error { return d.realDisk.remove(path) })
}

func (d *faultyDisk) syncDir(path string) error {
	return d.step("syncdir", func() error { return d.realDisk.syncDir(path) })
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	} else if string(b) != want {
		t.Errorf("%s holds %q, want %q", filepath.Base(path), b, want)
	}
}

func wantNames(t *testing.T, path string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("the directory holds %v, want %v", names, want)
	}
}
