package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestReader_LetsThePeerThrough(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		r := NewReader(c, h.pid())
		for _, text := range []string{"one", "two"} {
			h.obeys("write " + text)
			buf := make([]byte, 16)
			if n, err := r.Read(buf); err != nil || string(buf[:n]) != text {
				t.Fatalf("Read = %q, %v, want %q", buf[:n], err, text)
			}
		}
		h.obeys("close")
		if _, err := r.Read(make([]byte, 16)); err != io.EOF {
			t.Errorf("Read = %v, want EOF", err)
		}
	})
}

// Two writers on one socket: what the peer wrote comes, what follows does not.
func TestU09_ChildWritesOnInheritedDescriptor(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		r := NewReader(c, h.pid())
		h.obeys("write mine")
		h.obeys("child forged")
		h.obeys("write mine")
		buf := make([]byte, 64)
		if n, err := r.Read(buf); err != nil || string(buf[:n]) != "mine" {
			t.Fatalf("Read = %q, %v", buf[:n], err)
		}
		clear(buf)
		wantSender(t, r, buf, h.pid())
		if buf[0] != 0 {
			t.Errorf("the refused bytes stay in the buffer: %q", buf)
		}
		wantSender(t, r, buf, h.pid()) // for good
	})
}

func wantSender(t *testing.T, r *Reader, buf []byte, want int) {
	t.Helper()
	n, err := r.Read(buf)
	var sender *SenderError
	if n != 0 || !errors.As(err, &sender) || !errors.Is(err, ErrSender) || sender.Want != want || sender.Got == want || sender.Got == 0 {
		t.Fatalf("Read = %d, %v, want a SenderError", n, err)
	}
}

func TestU09_DescriptorPassedToAnotherProcess(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		meet := filepath.Join(filepath.Dir(copyProgram(t, "x")), "m")
		taker := start(t, program(t), "taker", meet, "forged")
		taker.expect("ok")
		h.obeys("pass " + meet)
		taker.expect("ok")
		var sender *SenderError
		_, err := NewReader(c, h.pid()).Read(make([]byte, 16))
		if !errors.As(err, &sender) || sender.Got != taker.pid() || sender.Want != h.pid() {
			t.Errorf("Read = %v, want a SenderError for process %d", err, taker.pid())
		}
	})
}

func TestReader_DescriptorRefusedAndNotKept(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h, c := connect(t, program(t))
		r := NewReader(c, h.pid())
		before := openDescriptors(t)
		h.obeys("rights x")
		if n, err := r.Read(make([]byte, 16)); n != 0 || !errors.Is(err, ErrDescriptor) || !errors.Is(err, ErrSender) {
			t.Errorf("Read = %d, %v, want ErrDescriptor", n, err)
		}
		if after := openDescriptors(t); after != before {
			t.Errorf("%d descriptors are open, were %d", after, before)
		}
	})
}

// One descriptor may come when it is expected: with the peer's own bytes, not
// two, not twice, not from another.
func TestReader_ExpectedDescriptor(t *testing.T) {
	h, c := connect(t, program(t))
	r := NewReader(c, h.pid())
	r.AcceptDescriptor()
	before := openDescriptors(t)
	h.obeys("write a")
	h.obeys("rights b")
	buf := make([]byte, 16)
	n, err := r.Read(buf)
	if n == 1 && err == nil { // the kernel may or may not glue the two writes
		n, err = r.Read(buf[1:])
		n++
	}
	f := r.Descriptor()
	if string(buf[:n]) != "ab" || err != nil || f == nil || r.Descriptor() != nil {
		t.Fatalf("Read = %q, %v, descriptor %v", buf[:n], err, f)
	}
	var st unix.Stat_t
	withFd(f, func(fd int) error { return unix.Fstat(fd, &st) })
	if null, _ := os.Stat(os.DevNull); st.Rdev != null.Sys().(*syscall.Stat_t).Rdev {
		t.Errorf("another file came: %+v", st)
	}
	f.Close()
	h.obeys("rights c")
	if _, err := r.Read(buf); !errors.Is(err, ErrDescriptor) {
		t.Errorf("the second: Read = %v, want ErrDescriptor", err)
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors are open, were %d", after, before)
	}
}

func TestReader_ExpectedDescriptorRefused(t *testing.T) {
	for name, attack := range map[string]struct {
		peer, descriptors int
	}{"two": {os.Getpid(), 2}, "of another": {os.Getppid(), 1}} {
		t.Run(name, func(t *testing.T) {
			pair := socketpair(t)
			c := unixConn(t, pair[0])
			passCred(t, c)
			r := NewReader(c, attack.peer)
			r.AcceptDescriptor()
			before := openDescriptors(t)
			withFd(pair[1], func(fd int) error {
				return unix.Sendmsg(fd, []byte("x"), unix.UnixRights([]int{0, 0}[:attack.descriptors]...), nil, 0)
			})
			if n, err := r.Read(make([]byte, 4)); n != 0 || !errors.Is(err, ErrSender) || r.Descriptor() != nil {
				t.Errorf("Read = %d, %v", n, err)
			}
			if after := openDescriptors(t); after != before {
				t.Errorf("%d descriptors are open, were %d", after, before)
			}
		})
	}
}

func TestOfPair_NamesTheMaker(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		pair := socketpair(t)
		// The shim's standard input, as the broker gets it: made by this process.
		shim := startWithStdin(t, exec.Command(program(t), fmt.Sprint(os.Getpid())), "stdio", pair[1])
		shim.expect("guarded socket true")
		p, err := OfPair(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if p.PID() != os.Getpid() {
			t.Errorf("maker %d, want %d", p.PID(), os.Getpid())
		}
		withFd(pair[1], func(fd int) error {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("flags %#x, %v: the mode of the shim's input was changed", flags, err)
			}
			return nil
		})
	})
}

func TestOfPair_NamedOrNoneRefused(t *testing.T) {
	_, c := connect(t, program(t))
	named, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	r, _ := pipe(t)
	ours, theirs := abstract(t)
	for _, f := range []*os.File{named, ours, theirs, r, null(t)} {
		if p, err := OfPair(f); !errors.Is(err, ErrNoAttribution) {
			t.Errorf("OfPair(%s) = %v, %v, want ErrNoAttribution", f.Name(), p, err)
		}
	}
}

// abstract makes a connection whose name looks like none to who does not ask
// for its length: the listener's is one NUL. One end has it, the other's peer.
func abstract(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds := [2]int{}
	for i := range fds {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
	}
	address := struct {
		family uint16
		path   [2]byte // abstract, and its name is NUL
	}{family: unix.AF_UNIX}
	if _, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fds[0]), uintptr(unsafe.Pointer(&address)), unsafe.Sizeof(address)); errno != 0 {
		t.Fatal(errno)
	}
	if err := unix.Listen(fds[0], 1); err != nil {
		t.Fatal(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fds[1]), uintptr(unsafe.Pointer(&address)), unsafe.Sizeof(address)); errno != 0 {
		t.Fatal(errno)
	}
	accepted, _, err := unix.Accept4(fds[0], unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[0])
	ours, theirs = os.NewFile(uintptr(accepted), "accepted"), os.NewFile(uintptr(fds[1]), "dialled")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Without SO_PASSCRED the kernel names nobody: nothing is read.
func TestReader_UnnamedSenderRefused(t *testing.T) {
	pair := socketpair(t)
	c := unixConn(t, pair[0])
	if _, err := pair[1].Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := NewReader(c, os.Getpid()).Read(make([]byte, 4)); n != 0 || !errors.Is(err, ErrSender) {
		t.Errorf("Read = %d, %v, want ErrSender", n, err)
	}
}

// The kernel stops naming senders: the last one named is not believed again.
func TestReader_NoLongerNamedRefused(t *testing.T) {
	pair := socketpair(t)
	c := unixConn(t, pair[0])
	passCred(t, c)
	r := NewReader(c, os.Getpid())
	for _, want := range []error{nil, ErrSender} {
		if _, err := pair[1].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 4)); !errors.Is(err, want) {
			t.Errorf("Read = %v, want %v", err, want)
		}
		withFd(pair[0], func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 0) })
	}
}

// What was queued before the option was set has no sender either.
func TestReader_QueuedBeforeRefused(t *testing.T) {
	pair := socketpair(t)
	c := unixConn(t, pair[0])
	if _, err := pair[1].Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	passCred(t, c)
	var sender *SenderError
	if _, err := NewReader(c, os.Getpid()).Read(make([]byte, 4)); !errors.As(err, &sender) || sender.Got != 0 {
		t.Errorf("Read = %v, want a SenderError for process 0", err)
	}
}

func TestReader_DeadlineIsNotTheEnd(t *testing.T) {
	h, c := connect(t, program(t))
	r := NewReader(c, h.pid())
	c.SetReadDeadline(time.Unix(1, 0))
	if _, err := r.Read(make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read = %v, want a timeout", err)
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	h.obeys("write x")
	if n, err := r.Read(make([]byte, 4)); n != 1 || err != nil {
		t.Errorf("Read = %d, %v", n, err)
	}
	c.Close()
	if _, err := r.Read(make([]byte, 4)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read = %v, want net.ErrClosed", err)
	}
}

func TestReader_AllocatesNothing(t *testing.T) {
	pair := socketpair(t)
	c := unixConn(t, pair[0])
	passCred(t, c)
	r := NewReader(c, os.Getpid())
	buf, text := make([]byte, 16), []byte("x")
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := pair[1].Write(text); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(buf); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a read", allocs)
	}
}

func TestListenControl_Inherited(t *testing.T) {
	l, path := listen(t)
	dialer := net.Dialer{Control: ListenControl}
	dialled, err := dialer.DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	for name, c := range map[string]*net.UnixConn{"accepted": accept(t, l), "dialled": dialled.(*net.UnixConn)} {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if on, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED); on != 1 || err != nil {
				t.Errorf("%s: SO_PASSCRED = %d, %v", name, on, err)
			}
		})
	}
	config := net.ListenConfig{Control: ListenControl}
	if l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("Listen(tcp) = %v, %v, want ErrUnsupported", l, err)
	}
}

// socketpair returns two connected, blocking, unnamed stream sockets.
func socketpair(t *testing.T) [2]*os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair := [2]*os.File{os.NewFile(uintptr(fds[0]), "pair0"), os.NewFile(uintptr(fds[1]), "pair1")}
	t.Cleanup(func() { pair[0].Close(); pair[1].Close() })
	return pair
}

func unixConn(t *testing.T, f *os.File) *net.UnixConn {
	t.Helper()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.UnixConn)
}

func passCred(t *testing.T, c *net.UnixConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := ListenControl("unix", "", raw); err != nil {
		t.Fatal(err)
	}
}
