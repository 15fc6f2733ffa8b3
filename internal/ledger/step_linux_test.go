package ledger

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/yett-broker/yett/internal/action"
	"golang.org/x/sys/unix"
)

// steps are the calls by which the ledger, its journal and SQLite change files.
var steps = []uintptr{unix.SYS_PWRITE64, unix.SYS_FDATASYNC, unix.SYS_FSYNC, unix.SYS_FTRUNCATE,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_LINKAT}

// interceptSteps lets another process decide about each step of this one. It
// gets the descriptor for it over descriptor 3.
func interceptSteps() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for i, nr := range steps {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(steps) - i), K: uint32(nr)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0)
}

// notice and verdict are struct seccomp_notif and seccomp_notif_resp.
type notice struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type verdict struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

const ioctlReceive, ioctlSend = 0xc0502100, 0xc0182101

// fate is what becomes of one step: the process is killed before it, or the
// step fails and nothing of it is done, or, of a write, only half is.
type fate struct {
	step  int
	errno syscall.Errno // 0: killed
}

// play runs a part under a fate. It returns what the part said, and whether
// the step was reached.
func play(t *testing.T, in installation, part string, f fate) (said []string, reached bool) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	theirs := os.NewFile(uintptr(pair[1]), "pair")
	ours, err := net.FileConn(os.NewFile(uintptr(pair[0]), "pair"))
	must(t, err)
	defer ours.Close()
	cmd := in.command(part)
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	theirs.Close()
	listener := receiveFD(t, ours, cmd)
	decided := make(chan bool, 1)
	go func() {
		defer unix.Close(listener)
		decided <- decide(listener, cmd, f)
	}()
	buf := make([]byte, 64<<10)
	var all strings.Builder
	for {
		n, err := out.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	return strings.Fields(strings.ReplaceAll(all.String(), " ", ":")), <-decided
}

func receiveFD(t *testing.T, c net.Conn, cmd *exec.Cmd) int {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
	if err != nil || n == 0 {
		_ = cmd.Process.Kill()
		t.Fatalf("the part gave no descriptor: %v", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	must(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	must(t, err)
	return fds[0]
}

// decide answers for each step until the process is gone.
func decide(listener int, cmd *exec.Cmd, f fate) (reached bool) {
	for count := 1; ; {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 30_000); err == unix.EINTR {
			continue
		} else if n == 0 || poll[0].Revents&unix.POLLIN == 0 {
			return reached
		}
		var n notice
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), ioctlReceive, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue
		}
		v := verdict{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if count == f.step {
			reached = true
			if f.errno == 0 {
				_ = cmd.Process.Kill()
				return true
			}
			v = verdict{id: n.id, err: -int32(f.errno)}
		}
		count++
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), ioctlSend, uintptr(unsafe.Pointer(&v)))
	}
}

// playDeeds does unsafe things, each of them written to the file "done" by its
// effect, and tells what the ledger said of it.
func playDeeds(open func() *Ledger) error {
	if err := interceptSteps(); err != nil {
		return err
	}
	done, err := os.OpenFile(filepath.Join(filepath.Dir(os.Args[1]), "done"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l := open()
	for i := range 7 {
		op := newOperation()
		op.ID, op.Digest, op.Unsafe = fmt.Sprintf("deed-%d", i), fmt.Appendf(nil, "digest of deed-%d", i), true
		r := row("intent")
		if i%3 == 2 { // so that segments change
			r.Claimed = []byte(`"` + strings.Repeat("x", 3000) + `"`)
		}
		if _, err := l.Begin(background, op, r, nil); err != nil {
			fmt.Println("refused", op.ID)
			_ = l.Probe(background)
			continue
		}
		if _, err := done.WriteString(op.ID + "\n"); err != nil {
			return err
		}
		if err := <-l.End(op.ID, action.Completed, "", row("outcome")); err == nil {
			fmt.Println("completed", op.ID)
		}
		if i%2 == 1 {
			_ = l.w.drain.upTo(0)
		}
	}
	_ = l.Close()
	fmt.Println("closed", "all")
	return nil
}

// playStart is a start and an orderly end.
func playStart(open func() *Ledger) error {
	if err := interceptSteps(); err != nil {
		return err
	}
	return open().Close()
}

// checkDeeds is what has to hold after any fate: what happened is known, once,
// and what the ledger said is true.
func checkDeeds(t *testing.T, in installation, said []string, name string) {
	t.Helper()
	done := strings.Fields(string(readFile(t, filepath.Join(filepath.Dir(in.dir), "done"))))
	l, err := Open(in.dir, Options{AuditPublicKey: in.public})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer l.Close()
	if err := l.CheckOperations(t.Context(), in.opener(t), 0); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for i := range 7 {
		id := fmt.Sprintf("deed-%d", i)
		op, ok, err := l.Operation(id)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		times := 0
		for _, d := range done {
			if d == id {
				times++
			}
		}
		again := newOperation()
		again.Digest, again.Unsafe = fmt.Appendf(nil, "digest of deed-%d", i), true
		_, err = l.Begin(t.Context(), again, row("intent"), nil)
		var unresolved ErrUnresolved
		held := errors.As(err, &unresolved)
		switch {
		case times > 1:
			t.Errorf("%s: %s happened %d times", name, id, times)
		case times == 1 && !ok:
			t.Errorf("%s: %s happened and is not known", name, id)
		case ok && op.State != action.Completed && op.State != action.Indeterminate:
			t.Errorf("%s: %s is %s", name, id, op.State)
		case slices.Contains(said, "completed:"+id) && op.State != action.Completed:
			t.Errorf("%s: %s was completed and is %s", name, id, op.State)
		case slices.Contains(said, "refused:"+id) && times > 0:
			t.Errorf("%s: %s was refused and happened", name, id)
		case ok && held != (op.State == action.Indeterminate):
			t.Errorf("%s: %s is %s, its repetition gave %v", name, id, op.State, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Errorf("%s: %v", name, r.Problems)
	}
}

// TestA06_EveryStepStops kills the broker before each of its steps, or lets
// the step fail: first start, groups, drains, changes of segments, and end.
func TestA06_EveryStepStops(t *testing.T) {
	for _, errno := range []syscall.Errno{0, syscall.ENOSPC, syscall.EIO} {
		t.Run(fmt.Sprint("errno ", int(errno)), func(t *testing.T) {
			t.Parallel()
			for step := 1; ; step += stride(errno, step) {
				in := newInstallation(t)
				smallSegments(t, in, minSegment)
				writeFile(t, filepath.Join(filepath.Dir(in.dir), "done"), nil)
				name := fmt.Sprintf("step %d, %v", step, errno)
				said, reached := play(t, in, "deeds", fate{step, errno})
				if checkDeeds(t, in, said, name); t.Failed() {
					t.Fatalf("it said %q", said)
				}
				if !reached {
					if step < 40 || !slices.Contains(said, "closed:all") {
						t.Fatalf("%s: only %d steps: %q", name, step, said)
					}
					return
				}
			}
		})
	}
}

// stride leaves out steps, unless YETT_CRASH wants every one: those of the long
// middle are of the same kinds.
func stride(errno syscall.Errno, step int) int {
	switch {
	case os.Getenv("YETT_CRASH") != "", step < 8:
		return 1
	case errno != 0:
		return 7
	}
	return 3
}

// TestA06_EveryStepOfAReplayStops does the same to a start that finds rows in
// the journal alone, and a torn group.
func TestA06_EveryStepOfAReplayStops(t *testing.T) {
	dead := undrainedLedger(t)
	whole := readFile(t, dead.journal())
	groups := groupsOf(t, whole)
	clear(whole[groups[len(groups)-1].at+512:])
	writeFile(t, dead.journal(), whole)
	for _, errno := range []syscall.Errno{0, syscall.ENOSPC} {
		for step := 1; ; step += stride(errno, step) {
			in := image(t, dead)
			_, reached := play(t, in, "start", fate{step, errno})
			name := fmt.Sprintf("step %d, %v", step, errno)
			l, err := Open(in.dir, Options{AuditPublicKey: in.public})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := l.CheckOperations(t.Context(), in.opener(t), 0); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for id, want := range map[string]action.State{"op-second": action.Indeterminate,
				"executing": action.Indeterminate, "queued": action.Denied} {
				if op, ok, err := l.Operation(id); !ok || err != nil || op.State != want {
					t.Fatalf("%s: %s: %+v %v", name, id, op, err)
				}
			}
			must(t, l.Close())
			if r := mustVerify(t, in, in.opener(t)); !r.OK {
				t.Fatalf("%s: %v", name, r.Problems)
			}
			if kept, _ := filepath.Glob(in.journal() + ".torn-*"); len(kept) != 1 {
				t.Fatalf("%s: kept %v", name, kept)
			}
			if !reached {
				if step < 10 {
					t.Fatalf("only %d steps", step)
				}
				break
			}
		}
	}
}

// TestA01_JournalFails in each way: what was refused left no trace in memory,
// what happened is written late, and a power cut meanwhile reads on the safe
// side.
func TestA01_JournalFails(t *testing.T) {
	for name, fault := range map[string]func(*faultyStore){
		"no room":              func(f *faultyStore) { f.write = syscall.ENOSPC },
		"input/output error":   func(f *faultyStore) { f.write = syscall.EIO },
		"short write":          func(f *faultyStore) { f.short = 700 },
		"nothing written":      func(f *faultyStore) { f.short = 0 },
		"failed but persisted": func(f *faultyStore) { f.sync = syscall.EIO },
	} {
		t.Run(name, func(t *testing.T) {
			in := newInstallation(t)
			l := in.open(t)
			running, refused := newOperation(), newOperation()
			mustBegin(t, l, running)
			follow(t, l)
			refused.Unsafe, refused.Idempotency, refused.BudgetKey = true, []byte("key"), []byte("budget")
			f := spoil(l)
			f.set(fault)
			begin := func() error {
				_, err := l.Begin(t.Context(), refused, row("intent"), &Budget{Max: 1, Window: time.Hour})
				return err
			}
			for range 2 {
				if err := begin(); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("an intent that cannot be written: %v", err)
				}
			}
			if err := l.Healthy(); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("healthy: %v", err)
			}
			if _, ok, err := l.Operation(refused.ID); ok || err != nil {
				t.Fatalf("it exists: %v %v", ok, err)
			}
			if err := <-l.End(running.ID, action.Completed, "", row("outcome")); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("an outcome that cannot be written: %v", err)
			}
			cut := image(t, in).open(t)
			op, ok, err := cut.Operation(refused.ID)
			if persisted := name == "failed but persisted"; err != nil || ok != persisted || ok && op.State != action.Indeterminate {
				t.Fatalf("after a power cut: %+v %v", op, err)
			}
			f.mend()
			must(t, l.Probe(t.Context()))
			must(t, begin()) // key and budget are not spent
			if op, _, err := l.Operation(running.ID); err != nil || op.State != action.Completed {
				t.Fatalf("the outcome: %+v %v", op, err)
			}
			must(t, l.Close())
			if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != 4 { // intent, outcome, ledger_resumed, intent
				t.Fatalf("%+v", r)
			}
		})
	}
}

// TestFailedGroupIsErased: what failed and got through all the same does not
// come back once the ledger went on, not even where it went on elsewhere.
func TestFailedGroupIsErased(t *testing.T) {
	in := newInstallation(t)
	smallSegments(t, in, minSegment)
	l := in.open(t)
	f := spoil(l)
	for i := range 12 {
		refused := newOperation()
		f.set(func(f *faultyStore) { f.sync = syscall.EIO })
		if _, err := l.Begin(t.Context(), refused, Row{Kind: "intent", Claimed: []byte(`"` + strings.Repeat("x", 2000) + `"`)}, nil); err == nil {
			t.Fatal("it began")
		}
		f.mend()
		must(t, l.Probe(t.Context()))
		if i < 11 { // at last nothing comes after it
			mustBegin(t, l, newOperation())
		}
		follow(t, l) // no transaction while the files are copied
		cut := image(t, in)
		next := cut.open(t)
		if _, ok, err := next.Operation(refused.ID); ok || err != nil {
			t.Fatalf("round %d: a refused intent came back: %v", i, err)
		}
		must(t, next.Close())
	}
	must(t, l.Close())
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Fatal(r.Problems)
	}
}

// TestFailureTakesBackWhatWasBuiltOnIt: a group that gathers on a group that
// fails fails with it.
func TestFailureTakesBackWhatWasBuiltOnIt(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	f := spoil(l)
	f.entered, f.hold = make(chan struct{}, 1), make(chan struct{})
	f.sync = syscall.EIO
	first, second := newOperation(), newOperation()
	first.Unsafe = true
	results := make(chan error, 2)
	begin := func(op Operation) {
		_, err := l.Begin(t.Context(), op, row("intent"), nil)
		results <- err
	}
	go begin(first)
	<-f.entered
	go begin(second)
	untilGathered(t, l, 1)
	close(f.hold)
	for range 2 {
		if err := <-results; !errors.Is(err, ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	f.mend()
	must(t, l.Probe(t.Context()))
	for i, op := range []Operation{first, second} {
		if n := mustBegin(t, l, op); n != int64(i+1) {
			t.Fatalf("row %d", n)
		}
	}
	must(t, l.Close())
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != 2 {
		t.Fatalf("%+v", r)
	}
}

// TestPersistThenPublish: the write, the sync, and only then an answer; one of
// each for an intent.
func TestPersistThenPublish(t *testing.T) {
	l := newInstallation(t).open(t)
	mustBegin(t, l, newOperation())
	f := spoil(l)
	f.entered, f.hold = make(chan struct{}, 1), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := l.Begin(t.Context(), newOperation(), row("intent"), nil)
		done <- err
	}()
	<-f.entered
	select {
	case err := <-done:
		t.Fatalf("answered before the sync: %v", err)
	default:
	}
	if n, _ := l.Entries(); n != 1 {
		t.Fatalf("%d entries before the sync", n)
	}
	close(f.hold)
	must(t, <-done)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) != 2 || !strings.HasPrefix(f.calls[0], "write") || f.calls[1] != "sync" {
		t.Fatalf("calls %q", f.calls)
	}
}
