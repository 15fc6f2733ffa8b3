package system

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/macos"
)

// Ways in which the stand-in's person answers, as testdata/person.c has them.
const (
	atOnce = iota
	whenTakenBack
	twice
	withoutError
	never
	yesWhenTakenBack
)

// person is the stand-in's prompt, and what stands on it.
type person struct {
	*TouchID
	answer   func(way, code int32)
	asked    func() string
	prompted func() int32
	live     func() int32
}

func openPerson(t *testing.T) *person {
	t.Helper()
	path := standin(t)
	w := &person{}
	var err error
	if w.TouchID, err = OpenTouchID(path, path, path, path); err != nil {
		t.Fatal(err)
	}
	l, err := open(path)
	if err == nil {
		err = l.bind([]binding{{"standin_person", &w.answer}, {"standin_asked", &w.asked}, {"standin_prompted", &w.prompted}, {"standin_live", &w.live}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	var no *macos.NotAuthenticated
	if !errors.As(err, &no) {
		t.Fatalf("%v is no refusal", err)
	}
	return no.Code
}

// TestTouchIDAsks: the prompt has the reason and the policy, and its answer comes
// from another thread, once; every object is released.
func TestTouchIDAsks(t *testing.T) {
	w := openPerson(t)
	before := w.live()
	w.answer(atOnce, 0)
	for policy, want := range map[macos.Policy]string{macos.Biometrics: "no title 1 approve FALCON ORCHID", macos.DeviceOwner: "2 approve FALCON ORCHID"} {
		if err := w.Ask(t.Context(), policy, "approve FALCON ORCHID"); err != nil || w.asked() != want {
			t.Errorf("%v, asked %q", err, w.asked())
		}
		if err := w.Can(policy); err != nil {
			t.Error(err)
		}
		w.prompted()
	}
	for _, code := range []int32{-1, -2, -8} {
		w.answer(atOnce, code)
		if got := codeOf(t, w.Ask(t.Context(), macos.Biometrics, "approve")); got != int(code) {
			t.Errorf("refused with %d, want %d", got, code)
		}
		if got := codeOf(t, w.Can(macos.Biometrics)); got != int(code) {
			t.Errorf("cannot: %d, want %d", got, code)
		}
		w.prompted()
	}
	w.answer(twice, -1)
	if got := codeOf(t, w.Ask(t.Context(), macos.Biometrics, "approve")); got != -1 {
		t.Errorf("a yes after a no: %d", got)
	}
	w.prompted()
	w.answer(withoutError, -1)
	if got := codeOf(t, w.Ask(t.Context(), macos.Biometrics, "approve")); got != noCode {
		t.Errorf("a no without a reason: %d", got)
	}
	w.prompted()
	w.answer(atOnce, 77) // init gives no object
	if err := w.Ask(t.Context(), macos.Biometrics, "approve"); !errors.Is(err, errNoMemory) {
		t.Errorf("without a context: %v", err)
	}
	if now := w.live(); now != before {
		t.Errorf("%d objects were not released", now-before)
	}
	if len(replies.await) != 0 {
		t.Errorf("%d replies are still awaited", len(replies.await))
	}
}

// TestTouchIDTakenBack: the end of the context takes the prompt away, and a yes
// that comes with it or after it is none.
func TestTouchIDTakenBack(t *testing.T) {
	w := openPerson(t)
	before := w.live()
	for _, way := range []int32{whenTakenBack, never, yesWhenTakenBack} {
		w.answer(way, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := w.Ask(ctx, macos.Biometrics, "approve"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d: %v", way, err)
		}
		cancel()
		if w.prompted() != 1 {
			t.Error("there was no prompt")
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Ask(over, macos.Biometrics, "approve"); !errors.Is(err, context.Canceled) || w.prompted() != 0 {
		t.Errorf("after the end: %v", err)
	}
	if now := w.live(); now != before {
		t.Errorf("%d objects were not released", now-before)
	}
}

// TestTouchIDIsNotAskedAmiss: what the system would end the process for, as the
// stand-in does, never reaches it.
func TestTouchIDIsNotAskedAmiss(t *testing.T) {
	w := openPerson(t)
	for _, err := range []error{w.Ask(t.Context(), macos.Biometrics, ""), w.Ask(t.Context(), 3, "approve"), w.Can(0)} {
		if !errors.Is(err, macos.ErrQuestion) {
			t.Error(err)
		}
	}
	if w.prompted() != 0 {
		t.Error("there was a prompt")
	}
}

// TestTouchIDMissing: a class, a method or a library that is not there is an
// error that names it.
func TestTouchIDMissing(t *testing.T) {
	whole := standin(t)
	for flag, name := range map[string]string{"-DWITHOUT_CONTEXT": "LAContext", "-DWITHOUT_INVALIDATE": "invalidate"} {
		without := standin(t, flag)
		if _, err := OpenTouchID(without, without, without, without); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), name) {
			t.Error(err)
		}
	}
	if _, err := OpenTouchID(whole, whole, whole, t.TempDir()+"/none.so"); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
}

// TestReplyCountsOnce: of a block only the first call is handed over, and none
// after it is forgotten.
func TestReplyCountsOnce(t *testing.T) {
	var heard []bool
	hear := func(success bool, _ uintptr) { heard = append(heard, success) }
	block, forget := newReply(0, hear)
	replied(block, 0x700, 0)
	replied(block, 0x701, 0)
	forget()
	forgotten, forget := newReply(0, hear)
	forget()
	replied(forgotten, 1, 0)
	if len(heard) != 1 || heard[0] {
		t.Errorf("heard %v", heard)
	}
}
