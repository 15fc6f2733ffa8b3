package sshexec_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// startSFTP is a server with OpenSSH's own SFTP inside.
func startSFTP(t testing.TB, config ...string) *yetttest.SSHD {
	t.Helper()
	return yetttest.StartSSHD(t, append(config, "Subsystem sftp internal-sftp")...)
}

// realDir is a directory whose path has no symbolic links.
func realDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func fill(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o640); err != nil {
		t.Fatal(err)
	}
}

func contentOf(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// noise is size bytes that are the same in each run.
func noise(size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// onlyFiles wants a directory to hold these files and nothing else: no part.
func onlyFiles(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

// wantPart wants a copy to have failed after a part of it was on the host: it did
// not provably never leave.
func wantPart(t testing.TB, err error, left bool) *sshexec.PartError {
	t.Helper()
	e := wantError(t, err, sshexec.CodeUpstream, true)
	part, ok := errors.AsType[*sshexec.PartError](e)
	if !ok || part.Left != left || !strings.Contains(part.Name, "/.yett-") {
		t.Fatalf("err = %v (%+v), want a part, left %v", e, part, left)
	}
	return part
}

func TestCopyUpAndDown(t *testing.T) {
	s := startSFTP(t)
	e, k := newExecutor(), signerOf(t, s)
	defer e.Close()
	dir := realDir(t)
	for _, size := range []int{0, 1, 32 << 10, 5<<20 + 7} {
		data := noise(size)
		remote := filepath.Join(dir, "up")
		begun := 0
		tg := sessionTarget(s, "s")
		tg.Begin = func() error { begun++; return nil }
		done, err := e.Copy(t.Context(), tg, k, sshexec.Transfer{Remote: remote, Source: bytes.NewReader(data), MaxSize: 8 << 20})
		if err != nil {
			t.Fatalf("up, %d bytes: %v", size, err)
		}
		if done.Size != int64(size) || done.SHA256 != sha256.Sum256(data) || done.Replaced || begun != 1 || done.HostKey == "" {
			t.Errorf("up, %d bytes: %+v, begin was asked %d times", size, done, begun)
		}
		if !bytes.Equal(contentOf(t, remote), data) {
			t.Errorf("up, %d bytes: the host has something else", size)
		}
		var back bytes.Buffer
		done, err = e.Copy(t.Context(), tg, k, sshexec.Transfer{Remote: remote, Sink: &back, MaxSize: 8 << 20})
		if err != nil {
			t.Fatalf("down, %d bytes: %v", size, err)
		}
		if done.Size != int64(size) || done.SHA256 != sha256.Sum256(data) || !bytes.Equal(back.Bytes(), data) || begun != 1 {
			t.Errorf("down, %d bytes: %+v, begin was asked %d times", size, done, begun)
		}
		onlyFiles(t, dir, "up")
		os.Remove(remote)
	}
	runs(t, e, sessionTarget(s, "s"), k, "echo after", "after\n")
	if n := s.Accepted(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestCopyReplacesOnlyWhereItMay(t *testing.T) {
	s := startSFTP(t)
	e, k := newExecutor(), signerOf(t, s)
	dir := realDir(t)
	remote := filepath.Join(dir, "app.conf")
	fill(t, remote, []byte("old"))
	if err := os.Chmod(remote, 0o604); err != nil {
		t.Fatal(err)
	}
	up := sshexec.Transfer{Remote: remote, Source: strings.NewReader("new"), MaxSize: 100}
	_, err := e.Copy(t.Context(), targetOf(s), k, up)
	if e := wantError(t, err, sshexec.CodeUpstream, false); !strings.Contains(e.Error(), "there already") {
		t.Errorf("err = %v", e)
	}
	if got := contentOf(t, remote); string(got) != "old" {
		t.Fatalf("the file reads %q", got)
	}
	up.Source, up.Overwrite = strings.NewReader("new"), true
	done, err := e.Copy(t.Context(), targetOf(s), k, up)
	if err != nil || !done.Replaced {
		t.Fatalf("%+v, %v", done, err)
	}
	info, err := os.Stat(remote)
	if err != nil || info.Mode().Perm() != 0o604 || string(contentOf(t, remote)) != "new" {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	onlyFiles(t, dir, "app.conf")
}

// A file that comes up between the look and the rename is not replaced either.
func TestCopyDoesNotReplaceWhatCameMeanwhile(t *testing.T) {
	s := startSFTP(t)
	dir := realDir(t)
	remote := filepath.Join(dir, "f")
	tg := targetOf(s)
	tg.Begin = func() error { return os.WriteFile(remote, []byte("theirs"), 0o600) }
	_, err := newExecutor().Copy(t.Context(), tg, signerOf(t, s), sshexec.Transfer{Remote: remote, Source: strings.NewReader("ours"), MaxSize: 100})
	wantPart(t, err, false)
	if got := contentOf(t, remote); string(got) != "theirs" {
		t.Errorf("the file reads %q", got)
	}
	onlyFiles(t, dir, "f")
}

func TestCopyRefuses(t *testing.T) {
	s := startSFTP(t)
	k := signerOf(t, s)
	dir := realDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	fill(t, at("file"), []byte("content"))
	fill(t, at("long"), make([]byte, 101))
	for _, err := range []error{
		os.Mkdir(at("d"), 0o700), os.Symlink(dir, at("d/up")), os.Symlink(at("file"), at("link")),
		os.Symlink(at("nothing"), at("dangling")), syscall.Mkfifo(at("fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		remote string
		up     bool
		data   string
		want   string
	}{
		"down: a symbolic link":             {at("link"), false, "", "symbolic link"},
		"down: a link on the way":           {dir + "/d/../file", false, "", "symbolic link"},
		"down: a path that is not direct":   {dir + "/d/../file", false, "", "symbolic link"},
		"down: a FIFO":                      {at("fifo"), false, "", "no regular file"},
		"down: a directory":                 {at("d"), false, "", "no regular file"},
		"down: nothing":                     {at("nothing"), false, "", ""},
		"down: too long":                    {at("long"), false, "", "more than 100 bytes"},
		"down: grows while it is read":      {"/proc/cpuinfo", false, "", "more than 100 bytes"},
		"up: onto a symbolic link":          {at("link"), true, "x", "no regular file"},
		"up: onto a link to nothing":        {at("dangling"), true, "x", "no regular file"},
		"up: a link on the way":             {at("d/up/new"), true, "x", "symbolic link"},
		"up: onto a directory":              {at("d"), true, "x", "no regular file"},
		"up: onto a FIFO":                   {at("fifo"), true, "x", "no regular file"},
		"up: into a directory that is not":  {at("nothing/new"), true, "x", ""},
		"up: into a file":                   {at("file/new"), true, "x", ""},
		"up: too long":                      {at("new"), true, strings.Repeat("x", 101), "more than 100 bytes"},
		"up: too long by more than a chunk": {at("new"), true, strings.Repeat("x", 1<<20), "more than 100 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := sshexec.Transfer{Remote: c.remote, MaxSize: 100, Overwrite: true}
			var got bytes.Buffer
			if tr.Sink = &got; c.up {
				tr.Source, tr.Sink = strings.NewReader(c.data), nil
			}
			tg := targetOf(s)
			tg.Begin = func() error { t.Error("begin was asked"); return nil }
			_, err := newExecutor().Copy(t.Context(), tg, k, tr)
			if strings.HasPrefix(name, "up: too long") {
				wantPart(t, err, false)
			} else {
				wantError(t, err, sshexec.CodeUpstream, false)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q in it", err, c.want)
			}
			if got.Len() > 100 {
				t.Errorf("%d bytes came", got.Len())
			}
		})
	}
	onlyFiles(t, dir, "d", "dangling", "fifo", "file", "link", "long")
	if got := contentOf(t, at("file")); string(got) != "content" {
		t.Errorf("the file reads %q", got)
	}
}

func TestCopyWithoutSFTP(t *testing.T) {
	s := yetttest.StartSSHD(t)
	_, err := newExecutor().Copy(t.Context(), targetOf(s), signerOf(t, s), sshexec.Transfer{Remote: "/f", Sink: io.Discard, MaxSize: 1})
	if e := wantError(t, err, sshexec.CodeUpstream, false); !strings.Contains(e.Error(), "SFTP") {
		t.Errorf("err = %v", e)
	}
}

func TestCopyRefusedAtTheLastStepChangesNothing(t *testing.T) {
	s := startSFTP(t)
	dir := realDir(t)
	tg := targetOf(s)
	ended := errors.New("the session has ended")
	tg.Begin = func() error { return ended }
	_, err := newExecutor().Copy(t.Context(), tg, signerOf(t, s), sshexec.Transfer{Remote: filepath.Join(dir, "f"), Source: strings.NewReader("x"), MaxSize: 10})
	if e := wantPart(t, err, false); !errors.Is(e, ended) {
		t.Errorf("err = %v", e)
	}
	onlyFiles(t, dir)
}

// fakeFiles is an SFTP server on a channel host.
func fakeFiles(t testing.TB, h sftp.Handlers) sshexec.Target {
	t.Helper()
	_, tg := channelHost(t, func(_, _ int, _ *ssh.ServerConn, nc ssh.NewChannel) {
		ch, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		for req := range reqs {
			req.Reply(req.Type == "subsystem", nil)
			if req.Type == "subsystem" {
				go ssh.DiscardRequests(reqs)
				sftp.NewRequestServer(ch, h).Serve()
				ch.Close()
				return
			}
		}
	})
	return tg
}

// liar is a host that says of a file what is not so: its size, and how much there
// is of it.
type liar struct{}

func (liar) Fileread(*sftp.Request) (io.ReaderAt, error) { return liar{}, nil }
func (liar) ReadAt(b []byte, _ int64) (int, error)       { return len(b), nil }
func (liar) Filelist(*sftp.Request) (sftp.ListerAt, error) {
	return liar{}, nil
}
func (liar) ListAt(l []os.FileInfo, _ int64) (int, error) {
	l[0] = small{}
	return 1, io.EOF
}

type small struct{}

func (small) Name() string       { return "f" }
func (small) Size() int64        { return 10 }
func (small) Mode() os.FileMode  { return 0o600 }
func (small) ModTime() time.Time { return time.Time{} }
func (small) IsDir() bool        { return false }
func (small) Sys() any           { return nil }

func TestCopyOfAFileWithoutAnEnd(t *testing.T) {
	tg := fakeFiles(t, sftp.Handlers{FileGet: liar{}, FileList: liar{}})
	var got bytes.Buffer
	_, err := newExecutor().Copy(t.Context(), tg, newTestKey(t), sshexec.Transfer{Remote: "/f", Sink: &got, MaxSize: 1 << 20})
	e := wantError(t, err, sshexec.CodeUpstream, false)
	if long, ok := errors.AsType[*sshexec.TooLongError](e); !ok || long.Limit != 1<<20 || got.Len() > 1<<20 {
		t.Errorf("err = %v, %d bytes came", e, got.Len())
	}
}

// counter is a proxy that counts what goes to the host.
type counter struct {
	*fakeHost
	sent atomic.Int64
}

func newCounter(t testing.TB, upstream string) *counter {
	t.Helper()
	p := &counter{}
	p.fakeHost = newFakeHost(t, func(down net.Conn) {
		up, err := net.Dial("tcp", upstream)
		if err != nil {
			return
		}
		defer up.Close()
		go func() {
			io.Copy(down, up)
			down.Close()
		}()
		b := make([]byte, 64<<10)
		for {
			n, err := down.Read(b)
			if err != nil {
				return
			}
			p.sent.Add(int64(n))
			if _, err := up.Write(b[:n]); err != nil {
				return
			}
		}
	})
	return p
}

// endless is a file of zeros that tells when so much of it was read.
type endless struct {
	left int
	told chan struct{}
}

func (e *endless) Read(b []byte) (int, error) {
	if e.left > 0 {
		if e.left -= len(b); e.left <= 0 {
			close(e.told)
		}
	}
	return len(b), nil
}

// E5: chunks stop with the session, whichever way they go.
func TestE5_CopyStopsBetweenChunks(t *testing.T) {
	s := startSFTP(t)
	dir := realDir(t)
	source := filepath.Join(dir, "source")
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(source, 1<<40); err != nil {
		t.Fatal(err)
	}
	for name, transfer := range map[string]func(told chan struct{}) sshexec.Transfer{
		"up": func(told chan struct{}) sshexec.Transfer {
			return sshexec.Transfer{Remote: filepath.Join(dir, "target"), Source: &endless{4 << 20, told}, MaxSize: 1 << 40}
		},
		"down": func(told chan struct{}) sshexec.Transfer {
			return sshexec.Transfer{Remote: source, Sink: &sink{left: 4 << 20, told: told}, MaxSize: 1 << 40}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newCounter(t, s.Address)
			tg := sessionTarget(s, "s")
			tg.Address = p.address
			ctx, revoke := context.WithCancel(t.Context())
			defer revoke()
			told, failed := make(chan struct{}), make(chan error, 1)
			e := newExecutor()
			go func() {
				_, err := e.Copy(ctx, tg, signerOf(t, s), transfer(told))
				failed <- err
			}()
			happens(t, told, "copying")
			revoke()
			time.Sleep(100 * time.Millisecond) // what the rule gives
			after := p.sent.Load()
			select {
			case err := <-failed:
				if name == "up" {
					wantPart(t, err, true)
				} else {
					wantError(t, err, sshexec.CodeUpstream, false)
				}
			case <-time.After(patience):
				t.Fatal("the copy goes on")
			}
			happens(t, p.closed, "closing the connection")
			if n := p.sent.Load() - after; n != 0 {
				t.Errorf("%d bytes were sent later than 100 ms after the end", n)
			}
			if _, err := os.Stat(filepath.Join(dir, "target")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file has its place: %v", err)
			}
		})
	}
}

type sink struct {
	left int
	told chan struct{}
}

func (s *sink) Write(b []byte) (int, error) {
	if s.left > 0 {
		if s.left -= len(b); s.left <= 0 {
			close(s.told)
		}
	}
	return len(b), nil
}
