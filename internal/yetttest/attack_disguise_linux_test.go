package yetttest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

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
// and ends the session. A fresh start of the same file cannot be told: the card
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
