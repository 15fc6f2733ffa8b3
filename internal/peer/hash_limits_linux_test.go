package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// playFuse serves the file args[1] as args[0]/program, until its input ends.
func playFuse(args []string) error {
	content, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	root := &fs.Inode{}
	options := &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, Name: "played", AllowOther: true}}
	options.OnAdd = func(ctx context.Context) {
		file := &fs.MemRegularFile{Data: content, Attr: fuse.Attr{Mode: 0o755}}
		root.AddChild("program", root.NewPersistentInode(ctx, file, fs.StableAttr{}), false)
	}
	server, err := fs.Mount(args[0], root, options)
	if err != nil {
		return err
	}
	fmt.Println("ok")
	playIdle(nil)
	return server.Unmount()
}

// A program on FUSE, whose server then stops answering: everything is said at
// once, and its content is never asked for.
func TestHash_FuseIsNotHashedAndHoldsNothingUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := sharedDir(t)
	server := start(t, program(t), "fuse", dir, program(t))
	server.expect("ok")
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	l, path := listen(t)
	// Another process execs it: this one must not wait for the server.
	h := start(t, program(t), "host", "turn", "client", filepath.Join(dir, "program"), path)
	h.expect("ok")
	c := accept(t, l)
	if err := unix.Kill(server.pid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(server.pid(), unix.SIGCONT)

	begun := time.Now()
	p := of(t, c)
	p.Hash(t.Context())
	if err := p.Recheck(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > hashDeadline/2 {
		t.Errorf("held up for %v", took)
	}
	k, f := p.Evidence().Kernel, p.Evidence().Filesystem
	if k.ExePath != filepath.Join(dir, "program") || f.SHA256 != "" || f.NotHashed != "on a file system that others decide (fuse.played)" {
		t.Errorf("%+v %+v, want not hashed for FUSE", k, f)
	}
	if words := fmt.Sprint(Words(p.Evidence())); !strings.Contains(words, "program not hashed: on a file system that others decide (fuse.played)") {
		t.Errorf("words %s", words)
	}
	if n := len(hashSlots); n != 0 {
		t.Errorf("%d hashes still wait", n)
	}
}

// playTurn becomes the program args[1] in the role args[0].
func playTurn(args []string) error { return become(args[0], args[1], args[1:]) }

// An enormous file costs the accept nothing and the hash its deadline.
func TestHash_HugeFiles(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		for size, want := range map[int64]string{hashSizeCap + 1: "larger than 1024 MiB", hashSizeCap: "not finished in time"} {
			file := copyProgram(t, "client")
			if err := os.Truncate(file, size); err != nil { // sparse
				t.Fatal(err)
			}
			_, c := connect(t, file)
			p := of(t, c)
			if f := p.Evidence().Filesystem; f.Size != size || f.SHA256 != "" {
				t.Errorf("%+v", f)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			begun := time.Now()
			p.Hash(ctx)
			if took := time.Since(begun); took > hashDeadline/2 {
				t.Errorf("%d bytes: the hash took %v", size, took)
			}
			if f := p.Evidence().Filesystem; f.SHA256 != "" || f.NotHashed != want {
				t.Errorf("%d bytes: %+v, want %q", size, f, want)
			}
			if err := p.Recheck(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The deadline is there without the caller's, too.
func TestHash_DeadlineOfItsOwn(t *testing.T) {
	_, c := connect(t, copyProgram(t, "client"))
	p := of(t, c)
	for range cap(hashSlots) {
		hashSlots <- struct{}{}
	}
	ended := make(chan struct{})
	go func() {
		p.Hash(context.Background())
		close(ended)
	}()
	wait(t, ended, "the end of a hash that cannot begin")
	for range cap(hashSlots) {
		<-hashSlots
	}
	if f := p.Evidence().Filesystem; f.NotHashed != "no time left to begin" {
		t.Errorf("%+v", f)
	}
}

// All of the cache's key stays as it is while the content changes: on tmpfs a
// write through a mapping leaves the times alone. So only root's files are
// kept, and this one is not root's.
func TestHash_SameKeyOtherContent(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		file := filepath.Join(memoryDir(t), "client")
		copyTo(t, file, 0o755)
		if os.Geteuid() == 0 {
			if err := os.Chown(file, ordinary, ordinary); err != nil {
				t.Fatal(err)
			}
		}
		var digests [2]string
		var keys [2]fileKey
		for i := range digests {
			h, c := connect(t, file)
			p := of(t, c)
			p.Hash(t.Context())
			digests[i], keys[i] = p.Evidence().Filesystem.SHA256, keyOf(t, file)
			if want := digestOf(t, file); digests[i] != want {
				t.Errorf("run %d: digest %s, want %s", i, digests[i], want)
			}
			h.in.Close()
			h.cmd.Wait() // a running program cannot be written to
			flipLastByte(t, file)
		}
		if keys[0] != keys[1] {
			t.Errorf("the keys differ, this attack shows nothing: %+v %+v", keys[0], keys[1])
		}
		if digests[0] == digests[1] {
			t.Error("one digest for two contents")
		}
	})
}

// memoryDir returns a directory on tmpfs from which programs can run.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir := sharedDir(t)
	if os.Geteuid() == 0 {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	dir, err := os.MkdirTemp("/dev/shm", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// flipLastByte changes a file through a mapping.
func flipLastByte(t *testing.T, file string) {
	t.Helper()
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	data[st.Size-1] ^= 1
	if err := unix.Munmap(data); err != nil {
		t.Fatal(err)
	}
}
