package yetttest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// mmMap is struct prctl_mm_map of <linux/prctl.h>.
type mmMap struct {
	startCode, endCode, startData, endData, startBrk, brk, startStack uint64
	argStart, argEnd, envStart, envEnd                                uint64
	auxv                                                              *byte
	auxvSize, exeFD                                                   uint32
}

// keep remembers what tells the broker one exec from another.
func (s *puppetState) keep([]string) (string, error) {
	auxv, err := os.ReadFile("/proc/self/auxv")
	s.Auxv = auxv
	return "", err
}

// disguise puts it back after an exec, by PR_SET_MM_MAP.
func (s *puppetState) disguise([]string) (string, error) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return "", err
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after) // fields[0] is field 3
	at := func(n int) (v uint64) {
		fmt.Sscan(fields[n-3], &v)
		return v
	}
	brk, _, _ := unix.RawSyscall(unix.SYS_BRK, 0, 0, 0)
	m := mmMap{startCode: at(26), endCode: at(27), startStack: at(28), startData: at(45), endData: at(46), startBrk: at(47), brk: uint64(brk),
		argStart: at(48), argEnd: at(49), envStart: at(50), envEnd: at(51), auxv: &s.Auxv[0], auxvSize: uint32(len(s.Auxv)), exeFD: ^uint32(0)}
	err = unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m), 0)
	runtime.KeepAlive(s)
	if now, _ := os.ReadFile("/proc/self/auxv"); err == nil && string(now) != string(s.Auxv) {
		err = errors.New("it is another one still")
	}
	return "", err
}

// TestAttackDisguisedExec: after an exec the process puts back what the kernel
// wrote for the program before (PR_SET_MM_MAP). Another program is another file
// and ends the session, if the kernel names that file (see the last test here). A fresh start of the same file cannot be told: the card
// names that file and not the code it runs, and the record has what it does.
func TestAttackDisguisedExec(t *testing.T) {
	b, up := demoBroker(t)
	other := copyOf(t, t.TempDir(), "other")
	for _, program := range []string{other, "/proc/self/exe"} {
		p := newPuppet(t).greets(b)
		id, card := p.granted(b, "http:demo.read")
		p.do("keep")
		p.do("exec", program)
		p.do("disguise")
		if program == other {
			p.refused(wire.CodeSessionEnded, "act", "/v1/evil")
			b.changed(id, wire.CodeSessionEnded)
			continue
		}
		p.acts("/v1/ridden")
		if limits := shown(t, card).Verified.Limits; !strings.Contains(limits, "not the code it runs") {
			t.Errorf("the card does not say it: %s", limits)
		}
	}
	recorded := false
	for _, row := range b.Activity() {
		recorded = recorded || row.Kind == "intent" && strings.Contains(string(row.Request), "/v1/ridden")
	}
	if !recorded {
		t.Error("the record does not show what was done")
	}
	up.only(t, "GET /v1/ridden")
}

//go:embed testdata/disguise.c
var disguiseSource []byte

// disguiser builds the program that has the kernel name another file as its
// own: in C, since in it a child shares memory and stack with its parent.
func disguiser(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "disguise.c"), filepath.Join(dir, "disguise")
	must(t, os.WriteFile(source, disguiseSource, 0o600))
	must(t, run("gcc", "-O1", "-o", program, source))
	return program
}

// as starts program disguised as file, connected to the broker. What the state
// that it returns says to the broker, that process says.
func (b *Broker) as(program, file string) (s *puppetState, pid int) {
	b.T.Helper()
	mine, its, err := link(true)
	must(b.T, err)
	c := exec.Command(program, file, b.Location().Socket)
	c.Stdin, c.Stdout, c.Stderr = its, its, os.Stderr
	must(b.T, c.Start())
	its.Close()
	s = &puppetState{}
	must(b.T, s.adopt(mine))
	b.T.Cleanup(func() { s.conn.Close(); c.Process.Kill(); c.Wait() })
	return s, c.Process.Pid
}

// opens says hello in a role, opens a session and returns its id and card.
func (s *puppetState) opens(b *Broker, role string) (string, Card) {
	b.T.Helper()
	if line, err := s.hello([]string{role, "disguised"}); err != nil || !strings.Contains(line, `"nonce"`) {
		b.T.Fatalf("hello: %v %s", err, line)
	}
	line, err := s.open([]string{"http:demo.read"})
	var r struct{ Result wire.SessionResult }
	if err != nil || json.Unmarshal([]byte(line), &r) != nil || r.Result.Pending == nil {
		b.T.Fatalf("open: %v %s", err, line)
	}
	return r.Result.SessionID, b.CardOf(r.Result.Pending.ApprovalID)
}

// wears wants the kernel to name file as the program of a process in our own
// user namespace: otherwise the attack shows nothing.
func wears(t testing.TB, pid int, file string) {
	t.Helper()
	face, err1 := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	ours, err3 := os.Readlink("/proc/self/ns/user")
	if err := errors.Join(err1, err2, err3); err != nil || face != file || theirs != ours {
		t.Fatalf("the disguise does not hold: %s in %s, want %s in %s: %v", face, theirs, file, ours, err)
	}
}

// names wants the evidence of a process to be a file and its digest.
func names(t testing.TB, p approval.Process, pid int, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	sum := sha256.Sum256(content)
	if p.Kernel.PID != pid || p.Kernel.ExePath != file || p.Kernel.ExeState != "file" || p.Filesystem.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the card shows %+v, %+v", p.Kernel, p.Filesystem)
	}
}

// TestAttackDisguisedExecutable: where accounts may make user namespaces, a
// process has the kernel name a file of its choice as its program. The card
// names that file, as a native client's and as the installed yett-mcp's, whose
// parent is then taken for the agent. Without a yes nothing is done; the limits
// stand on the card, and the record has what was done, and as its agent the file
// that was named, or that parent.
func TestAttackDisguisedExecutable(t *testing.T) {
	b, up := demoBroker(t)
	program := disguiser(t)
	cat, err := filepath.EvalSymlinks("/usr/bin/cat")
	must(t, err)
	var did []string
	for role, file := range map[string]string{wire.RoleNative: cat, wire.RoleShim: Bin("yett-mcp")} {
		s, pid := b.as(program, file)
		id, card := s.opens(b, role)
		wears(t, pid, file)
		v := shown(t, card).Verified
		if role == wire.RoleNative {
			names(t, v.Agent, pid, file)
		} else {
			names(t, *v.Shim, pid, file)
			self, err := os.Executable()
			must(t, err)
			names(t, v.Agent, os.Getpid(), self) // it chooses no other agent than its parent
		}
		if len(v.Words) != 0 || !strings.Contains(v.Limits, "not the code it runs") {
			t.Errorf("%s: the card says %q, and of its limits %q", role, v.Words, v.Limits)
		}
		if line, err := s.act([]string{"/v1/unasked"}); err != nil || !strings.Contains(line, wire.CodeSessionPending) {
			t.Errorf("%s: without a yes: %v %s", role, err, line)
		}
		b.Approve(card, "--for", "1h")
		if line, err := s.wait(nil); err != nil || !strings.Contains(line, `"active"`) {
			t.Fatalf("%s: wait: %v %s", role, err, line)
		}
		path := "/v1/" + role
		if line, err := s.act([]string{path}); err != nil || !strings.Contains(line, `"completed"`) {
			t.Fatalf("%s: act: %v %s", role, err, line)
		}
		b.intentOf(id, path, v.Agent.Kernel.ExePath, v.Agent.Filesystem.SHA256)
		did = append(did, "GET "+path)
	}
	up.only(t, did...)
}

// intentOf wants the row of an intent for a path, with texts in its evidence.
func (b *Broker) intentOf(id, path string, evidence ...string) {
	b.T.Helper()
	for _, row := range b.Activity() {
		if row.Kind != "intent" || row.SessionID != id || !strings.Contains(string(row.Request), path) {
			continue
		}
		for _, text := range evidence {
			if !strings.Contains(string(row.Verified), text) {
				b.T.Errorf("the record of %s lacks %s: %s", path, text, row.Verified)
			}
		}
		return
	}
	b.T.Errorf("no intent of %s for %s", id, path)
}

// TestAttackDisguisedAfterExec: an approved process becomes another program,
// which has the kernel name the old file and puts the old auxiliary vector back.
// That exec is not told. What the other program may do is what the card said,
// and the record has it.
func TestAttackDisguisedAfterExec(t *testing.T) {
	b, up := demoBroker(t)
	program := disguiser(t)
	p := newPuppet(t).greets(b)
	self, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
	must(t, err)
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", p.pid))
	must(t, err)
	auxv := filepath.Join(t.TempDir(), "auxv")
	must(t, os.WriteFile(auxv, vector, 0o600))
	id, _ := p.granted(b, "http:demo.read")
	p.do("exec", program, self, "20", auxv) // inheritable() takes 20
	ridden := func(sequence int64, path string) string {
		t.Helper()
		fmt.Fprintln(p.in, actionLine(id, sequence, path))
		line, err := p.out.ReadString('\n')
		must(t, err)
		return line
	}
	if line := ridden(2, "/v1/ridden"); !strings.Contains(line, `"completed"`) {
		t.Errorf("it is told: %s", line)
	}
	wears(t, p.pid, self)
	b.intentOf(id, "/v1/ridden", self)
	if line := ridden(3, "/other/path"); strings.Contains(line, `"completed"`) {
		t.Errorf("more than the card: %s", line)
	}
	up.only(t, "GET /v1/ridden")
}
