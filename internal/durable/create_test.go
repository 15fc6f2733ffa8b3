package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestCreateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	old := syscall.Umask(0o777)
	err := CreateFile(path, []byte("new"))
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "new")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := CreateFile(path, []byte("other")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file that is there: %v", err)
	}
	wantFile(t, path, "new")
	wantNames(t, path, "f")
}

func TestCreateFileFails(t *testing.T) {
	for _, step := range []string{"create", "chmod", "write", "write-short", "sync", "syncdir"} {
		path := filepath.Join(t.TempDir(), "f")
		d := &faultyDisk{fail: step, cause: syscall.EIO}
		if err := createFile(d, path, []byte("new content")); err == nil {
			t.Errorf("%s: no error", step)
		}
		_, err := os.Lstat(path)
		if whole := step == "syncdir"; whole != (err == nil) {
			t.Errorf("%s: a file is left: %v", step, err == nil)
		}
	}
	d := &faultyDisk{}
	if err := createFile(d, filepath.Join(t.TempDir(), "f"), nil); err != nil || !slices.Equal(d.done, []string{"create", "chmod", "write", "sync", "syncdir"}) {
		t.Errorf("steps %v, %v", d.done, err)
	}
}
