package peer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startWithStdin starts a helper whose standard input is f.
func startWithStdin(t *testing.T, cmd *exec.Cmd, role string, f *os.File) *helper {
	t.Helper()
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stdin, cmd.Stderr = f, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		stuck.Stop()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &helper{t, cmd, nil, bufio.NewReader(out)}
}

func guard(t *testing.T, in, out *os.File, parent int) *Stdio {
	t.Helper()
	s, err := GuardStdin(in, out, parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// M10: a line is handed out when its newline has come, the input stays open.
func TestM10_LineByLineWithInputOpen(t *testing.T) {
	pair := socketpair(t)
	r, w := pipe(t)
	for name, ends := range map[string][2]*os.File{"pipe": {r, w}, "socket": {pair[0], pair[1]}} {
		t.Run(name, func(t *testing.T) {
			s := guard(t, ends[0], null(t), os.Getpid())
			if s.Kind != name || !s.Guarded || s.Why != "" {
				t.Fatalf("%+v", s)
			}
			lines := make(chan string)
			go func() {
				defer close(lines)
				for {
					line, attributed, err := s.ReadLine(1 << 20)
					if err != nil {
						return
					}
					lines <- fmt.Sprint(string(line), attributed)
				}
			}()
			long := string(bytes.Repeat([]byte("x"), 300_000))
			for _, text := range []string{"whole\n", "a", "b\n", "one\ntwo\nthr", "ee\n", "\n", long, "\n"} {
				if _, err := io.WriteString(ends[1], text); err != nil {
					t.Fatal(err)
				}
				for range bytes.Count([]byte(text), []byte("\n")) {
					select {
					case line := <-lines:
						want := map[string]bool{"wholetrue": true, "abtrue": true, "onetrue": true, "twotrue": true, "threetrue": true, "true": true, long + "true": true}
						if !want[line] {
							t.Errorf("line %.40q", line)
						}
					case <-time.After(20 * time.Second):
						t.Fatalf("no line after %.40q", text)
					}
				}
			}
			s.Close() // ends the blocked read
			if line, ok := <-lines; ok {
				t.Errorf("line %q after Close", line)
			}
		})
	}
}

func TestStdio_LineLimitsAndEnd(t *testing.T) {
	r, w := pipe(t)
	s := guard(t, r, null(t), os.Getpid())
	if _, err := w.WriteString("1234\n12345\n"); err != nil {
		t.Fatal(err)
	}
	if line, _, err := s.ReadLine(4); string(line) != "1234" || err != nil {
		t.Errorf("ReadLine = %q, %v", line, err)
	}
	if line, _, err := s.ReadLine(4); line != nil || err != ErrLineTooLong {
		t.Errorf("ReadLine = %q, %v, want ErrLineTooLong", line, err)
	}

	r, w = pipe(t)
	s = guard(t, r, null(t), os.Getpid())
	if _, err := w.WriteString("12345"); err != nil { // and no newline
		t.Fatal(err)
	}
	if _, _, err := s.ReadLine(4); err != ErrLineTooLong {
		t.Errorf("ReadLine = %v, want ErrLineTooLong", err)
	}

	r, w = pipe(t)
	s = guard(t, r, null(t), os.Getpid())
	w.WriteString("whole\npart")
	w.Close()
	if line, attributed, err := s.ReadLine(9); string(line) != "whole" || !attributed || err != nil {
		t.Errorf("ReadLine = %q, %v, %v", line, attributed, err)
	}
	if line, _, err := s.ReadLine(9); string(line) != "part" || err != io.ErrUnexpectedEOF {
		t.Errorf("ReadLine = %q, %v, want ErrUnexpectedEOF", line, err)
	}
	if _, _, err := s.ReadLine(9); err != io.EOF {
		t.Errorf("ReadLine = %v, want EOF", err)
	}
}

// Another process opens our end, or the agent's, through /proc and writes.
func TestStdio_PipeIntrusion(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		for _, end := range []string{"reader's", "writer's", "output's"} {
			t.Run(end, func(t *testing.T) {
				r, w := pipe(t)
				outR, outW := pipe(t)
				s := guard(t, r, outW, os.Getpid())
				if !s.Guarded {
					t.Fatalf("not guarded: %s", s.Why)
				}
				if _, err := w.WriteString("mine\n"); err != nil {
					t.Fatal(err)
				}
				if line, _, err := s.ReadLine(99); string(line) != "mine" || err != nil {
					t.Fatalf("ReadLine = %q, %v", line, err)
				}
				select {
				case <-s.Intruded():
					t.Fatal("our own use trips the watch")
				default:
				}
				target := map[string]*os.File{"reader's": r, "writer's": w, "output's": outR}[end]
				path := ""
				withFd(target, func(fd int) error {
					path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
					return nil
				})
				if out, err := openerCommand(t, path).CombinedOutput(); err != nil {
					t.Fatalf("opener: %v %s", err, out)
				}
				if line, _, err := s.ReadLine(99); !errors.Is(err, ErrIntruded) {
					t.Errorf("ReadLine = %q, %v, want ErrIntruded", line, err)
				}
				wait(t, s.Intruded(), "the intrusion")
			})
		}
	})
}

func openerCommand(t *testing.T, path string) *exec.Cmd {
	cmd := exec.Command(program(t), path, "forged\n")
	cmd.Env = append(os.Environ(), roleVariable+"=opener")
	return cmd
}

func TestStdio_IntrusionNoticedWithoutReading(t *testing.T) {
	r, w := pipe(t)
	s := guard(t, r, null(t), os.Getpid())
	openThroughProc(t, w)
	wait(t, s.Intruded(), "the intrusion")
}

func openThroughProc(t *testing.T, f *os.File) {
	t.Helper()
	withFd(f, func(fd int) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
		if err != nil {
			t.Fatal(err)
		}
		return f.Close()
	})
}

// Nothing is written, and the blocked read ends.
func TestStdio_IntrusionEndsARead(t *testing.T) {
	r, w := pipe(t)
	s := guard(t, r, null(t), os.Getpid())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Reader().Read(make([]byte, 1))
		ended <- err
	}()
	openThroughProc(t, w)
	wait(t, s.Intruded(), "the intrusion")
	if err := <-ended; !errors.Is(err, ErrIntruded) {
		t.Errorf("Read = %v, want ErrIntruded", err)
	}
}

// The whole of it as a shim has it: descriptor 0 and 1 of a process.
func TestStdio_RealShimOnPipes(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		h := start(t, program(t), "stdio", fmt.Sprint(os.Getpid()))
		h.expect("guarded pipe true")
		h.order("hello")
		h.expect(`line "hello" true`)
		if out, err := openerCommand(t, fmt.Sprintf("/proc/%d/fd/0", h.pid())).CombinedOutput(); err != nil {
			t.Fatalf("opener: %v %s", err, out)
		}
		h.expect("intruded")
	})
}

func TestStdio_SocketOtherSenderRefused(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		pair := socketpair(t)
		h := startWithStdin(t, exec.Command(program(t), fmt.Sprint(os.Getpid())), "stdio", pair[1])
		h.expect("guarded socket true")
		if _, err := pair[0].WriteString("hello\n"); err != nil {
			t.Fatal(err)
		}
		h.expect(`line "hello" true`)
		other := exec.Command(program(t), "forged\n")
		other.Env = append(os.Environ(), roleVariable+"=writer")
		other.ExtraFiles = []*os.File{pair[0]}
		if out, err := other.CombinedOutput(); err != nil {
			t.Fatalf("writer: %v %s", err, out)
		}
		h.expect(fmt.Sprintf("sender %d %d", os.Getpid(), other.Process.Pid))
	})
}

// Bytes from before the guard are delivered and flagged, and a line that mixes
// them with later bytes is flagged as a whole.
func TestStdio_QueuedBeforeIsFlagged(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		pair := socketpair(t)
		if _, err := pair[1].WriteString("early\nmix"); err != nil {
			t.Fatal(err)
		}
		s := guard(t, pair[0], null(t), os.Getpid())
		if _, err := pair[1].WriteString("ed\nlate\n"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			line       string
			attributed bool
		}{{"early", false}, {"mixed", false}, {"late", true}} {
			if line, attributed, err := s.ReadLine(99); string(line) != want.line || attributed != want.attributed || err != nil {
				t.Errorf("ReadLine = %q, %v, %v, want %+v", line, attributed, err, want)
			}
		}
	})
}

func TestStdio_ReaderNeverMixesSenders(t *testing.T) {
	pair := socketpair(t)
	pair[1].WriteString("early\nmix")
	s := guard(t, pair[0], null(t), os.Getpid())
	pair[1].WriteString("ed\n")
	if line, _, err := s.ReadLine(99); string(line) != "early" || err != nil {
		t.Fatalf("ReadLine = %q, %v", line, err)
	}
	for _, want := range []struct {
		text    string
		trusted bool
	}{{"mix", false}, {"ed\n", true}} {
		buf := make([]byte, 99)
		n, err := s.Reader().Read(buf)
		if string(buf[:n]) != want.text || s.Trusted() != want.trusted || err != nil {
			t.Errorf("Read = %q, %v, trusted %v, want %+v", buf[:n], err, s.Trusted(), want)
		}
	}
}

// ReadLine has taken in bytes of both kinds and given none out.
func TestStdio_ReaderNeverMixesAfterALongLine(t *testing.T) {
	pair := socketpair(t)
	pair[1].WriteString("abc")
	s := guard(t, pair[0], null(t), os.Getpid())
	pair[1].WriteString("def")
	if _, _, err := s.ReadLine(4); err != ErrLineTooLong {
		t.Fatalf("ReadLine = %v, want ErrLineTooLong", err)
	}
	for _, want := range []string{"abcfalse", "deftrue"} {
		buf := make([]byte, 99)
		n, err := s.Reader().Read(buf)
		if got := fmt.Sprint(string(buf[:n]), s.Trusted()); got != want || err != nil {
			t.Errorf("Read = %s, %v, want %s", got, err, want)
		}
	}
}

func TestStdio_DescriptorOnSocketRefused(t *testing.T) {
	pair := socketpair(t)
	s := guard(t, pair[0], null(t), os.Getpid())
	withFd(pair[1], func(fd int) error { return unix.Sendmsg(fd, []byte("x\n"), unix.UnixRights(0), nil, 0) })
	if _, _, err := s.ReadLine(99); !errors.Is(err, ErrDescriptor) {
		t.Errorf("ReadLine = %v, want ErrDescriptor", err)
	}
}

func TestStdio_NotGuarded(t *testing.T) {
	s := guard(t, null(t), null(t), os.Getpid())
	if s.Kind != "other" || s.Guarded || s.Why == "" {
		t.Errorf("/dev/null: %+v", s)
	}
	if _, _, err := s.ReadLine(99); err != io.EOF {
		t.Errorf("ReadLine = %v, want EOF", err)
	}

	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	datagram := os.NewFile(uintptr(fds[0]), "datagram")
	defer datagram.Close()
	if s := guard(t, datagram, null(t), os.Getpid()); s.Kind != "socket" || s.Guarded || s.Why == "" {
		t.Errorf("datagram socket: %+v", s)
	}
}

// A pipe of another account cannot be watched, and that is said.
func TestStdio_WatchDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has a pipe of another account to give")
	}
	r, w := pipe(t)
	defer w.Close()
	shim := filepath.Join(sharedDir(t), "shim")
	copyTo(t, shim, 0o755)
	cmd := exec.Command(shim, fmt.Sprint(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	h := startWithStdin(t, cmd, "stdio", r)
	h.expect("guarded pipe false")
}

// The mode of a description that others share stays as it was.
func TestStdio_ModeOfSharedDescriptionStays(t *testing.T) {
	for _, nonblocking := range []bool{false, true} {
		fds := make([]int, 2)
		if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(fds[0], nonblocking); err != nil {
			t.Fatal(err)
		}
		r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
		s := guard(t, r, null(t), os.Getpid())
		w.WriteString("x\n")
		if line, _, err := s.ReadLine(9); string(line) != "x" || err != nil {
			t.Errorf("ReadLine = %q, %v", line, err)
		}
		flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 != nonblocking {
			t.Errorf("nonblocking %v: flags %#x, %v", nonblocking, flags, err)
		}
		r.Close()
		w.Close()
	}
}
