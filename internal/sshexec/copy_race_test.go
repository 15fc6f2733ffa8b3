package sshexec_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pkg/sftp"

	"github.com/yett-broker/yett/internal/sshexec"
)

// swap has a directory lead elsewhere, where its parts are under the same names.
func swap(t testing.TB, dir, elsewhere string) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, ".yett-*"))
	for _, p := range parts {
		err = errors.Join(err, os.Link(p, filepath.Join(elsewhere, filepath.Base(p))))
	}
	if err := errors.Join(err, os.Rename(dir, dir+" away"), os.Symlink(elsewhere, dir)); err != nil {
		t.Error(err)
	}
}

// then is what follows the last byte of a source, or the first of a sink.
type then struct {
	io.Reader
	bytes.Buffer
	do func()
}

func (h *then) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	if err != nil && h.do != nil {
		h.do()
		h.do = nil
	}
	return n, err
}

func (h *then) Write(b []byte) (int, error) {
	if h.do != nil {
		h.do()
		h.do = nil
	}
	return h.Buffer.Write(b)
}

// A process on the host that swaps the directory for a link: before the rename
// nothing gets a place, afterwards the outcome is not called known.
func TestCopyUpWhileDirectoryChanges(t *testing.T) {
	s := startSFTP(t)
	k := signerOf(t, s)
	for _, late := range []bool{false, true} {
		root := realDir(t)
		dir, elsewhere := filepath.Join(root, "d"), filepath.Join(root, "elsewhere")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(elsewhere, 0o700)); err != nil {
			t.Fatal(err)
		}
		tg, source := targetOf(s), &then{Reader: strings.NewReader("content")}
		if late {
			tg.Begin = func() error { swap(t, dir, elsewhere); return nil }
		} else {
			source.do = func() { swap(t, dir, elsewhere) }
			tg.Begin = func() error { t.Error("begin was asked"); return nil }
		}
		_, err := newExecutor().Copy(t.Context(), tg, k, sshexec.Transfer{Remote: dir + "/f", Source: struct{ io.Reader }{source}, MaxSize: 100})
		if !late {
			wantPart(t, err, true)
			if _, err := os.Stat(elsewhere + "/f"); err == nil {
				t.Error("the file got a place elsewhere")
			}
			continue
		}
		if e := wantError(t, err, sshexec.CodeUpstream, true); !strings.Contains(e.Error(), "elsewhere") {
			t.Errorf("late: %v", e)
		}
	}
}

func TestCopyDownWhilePathChanges(t *testing.T) {
	s := startSFTP(t)
	root := realDir(t)
	dir, elsewhere := filepath.Join(root, "d"), filepath.Join(root, "elsewhere")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(elsewhere, 0o700)); err != nil {
		t.Fatal(err)
	}
	fill(t, dir+"/f", []byte("content"))
	fill(t, elsewhere+"/f", []byte("content"))
	_, err := newExecutor().Copy(t.Context(), targetOf(s), signerOf(t, s),
		sshexec.Transfer{Remote: dir + "/f", Sink: &then{do: func() { swap(t, dir, elsewhere) }}, MaxSize: 100})
	if e := wantError(t, err, sshexec.CodeUpstream, false); !strings.Contains(e.Error(), "symbolic link") {
		t.Errorf("err = %v", e)
	}
}

// swapped is a host where another file is opened than lies at the path.
type swapped struct{ liar }

func (swapped) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method == "Lstat" {
		return liar{}, nil
	}
	return other{}, nil
}
func (swapped) Lstat(*sftp.Request) (sftp.ListerAt, error) { return liar{}, nil }

type other struct{ small }

func (other) Size() int64 { return 11 }
func (o other) ListAt(l []os.FileInfo, _ int64) (int, error) {
	l[0] = o
	return 1, io.EOF
}

func TestCopyDownOfAnotherFile(t *testing.T) {
	tg := fakeFiles(t, sftp.Handlers{FileGet: swapped{}, FileList: swapped{}})
	var got bytes.Buffer
	_, err := newExecutor().Copy(t.Context(), tg, newTestKey(t), sshexec.Transfer{Remote: "/f", Sink: &got, MaxSize: 1 << 10})
	if e := wantError(t, err, sshexec.CodeUpstream, false); !strings.Contains(e.Error(), "another file was opened") || got.Len() != 0 {
		t.Errorf("err = %v, %d bytes came", e, got.Len())
	}
}
