package system

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/yett-broker/yett/internal/macos"
)

// TouchID asks the person for their finger through LAContext. It is a gate of
// this program: what it answers is the word of the system to this process.
type TouchID struct {
	cf *foundation
	o  *runtimeOfObjC

	globalBlock uintptr // address of _NSConcreteGlobalBlock
	class       uintptr
	alloc       uintptr // selector

	init, canEvaluate, evaluate, invalidate, fallbackTitle uintptr // selectors
	code                                                   uintptr // of NSError
}

// blockSymbols are what a block needs of libSystem.
func (t *TouchID) blockSymbols() []binding {
	return []binding{{"_NSConcreteGlobalBlock", &t.globalBlock}}
}

func (t *TouchID) contextMethods() []method {
	return []method{
		{"init", &t.init},
		{"canEvaluatePolicy:error:", &t.canEvaluate},
		{"evaluatePolicy:localizedReason:reply:", &t.evaluate},
		{"invalidate", &t.invalidate},
		{"setLocalizedFallbackTitle:", &t.fallbackTitle},
	}
}

func (t *TouchID) errorMethods() []method { return []method{{"code", &t.code}} }

// OpenTouchID opens the libraries, or stand-ins for them.
func OpenTouchID(libSystem, coreFoundation, libObjC, localAuthentication string) (*TouchID, error) {
	t := &TouchID{cf: &foundation{}, o: &runtimeOfObjC{}}
	for _, l := range []struct {
		path string
		want []binding
	}{{libSystem, t.blockSymbols()}, {coreFoundation, t.cf.bindings()}, {libObjC, t.o.bindings()}, {localAuthentication, nil}} {
		opened, err := open(l.path)
		if err == nil {
			err = opened.bind(l.want)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := t.o.bindClass("NSError", t.errorMethods()); err != nil {
		return nil, err
	}
	var err error
	t.class, err = t.o.bindClass("LAContext", t.contextMethods())
	t.alloc = t.o.selector("alloc") // every class has it
	return t, err
}

// Can asks whether the person could be asked now. The error is a
// NotAuthenticated with the system's code.
func (t *TouchID) Can(p macos.Policy) (err error) {
	if err := macos.CheckQuestion(p, "probe"); err != nil {
		return err
	}
	t.o.pooled(func() {
		var context uintptr
		if context, err = t.newContext(); err != nil {
			return
		}
		defer t.o.release(context)
		var failure uintptr
		if !t.o.sendPolicy(context, t.canEvaluate, int(p), &failure) {
			err = t.failed(failure)
		}
	})
	return err
}

// Ask shows the system's prompt with the reason and waits for the person, or for
// the end of ctx, which takes the prompt away. Nil means that the person was
// there. Deadline: that of ctx, and a moment for the prompt to go.
func (t *TouchID) Ask(ctx context.Context, p macos.Policy, reason string) (err error) {
	if err := macos.CheckQuestion(p, reason); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var laContext uintptr
	answer, forget := make(chan int, 1), func() {}
	t.o.pooled(func() { laContext, forget, err = t.begin(p, reason, answer) })
	if err != nil {
		return err
	}
	defer forget()
	defer t.o.release(laContext)
	select {
	case code := <-answer:
		if code != 0 {
			return &macos.NotAuthenticated{Code: code}
		}
		return nil
	case <-ctx.Done():
		t.o.pooled(func() { t.o.send(laContext, t.invalidate) })
		return fmt.Errorf("asking for Touch ID: %w", ctx.Err()) // also where a finger came at that moment
	}
}

// begin shows the prompt. It hands the answer's code over once: 0 for yes. The
// context is the caller's to release, after which forget lets go of the reply.
func (t *TouchID) begin(p macos.Policy, reason string, answer chan<- int) (laContext uintptr, forget func(), err error) {
	text, err := t.cf.newString(reason)
	if err != nil {
		return 0, nil, err
	}
	defer t.cf.release(text) // the context keeps it as long as it needs it
	none, err := t.cf.newString("")
	if err != nil {
		return 0, nil, err
	}
	defer t.cf.release(none)
	if laContext, err = t.newContext(); err != nil {
		return 0, nil, err
	}
	if p == macos.Biometrics { // no button for a password, which this policy does not take
		t.o.sendText(laContext, t.fallbackTitle, none)
	}
	block, forget := newReply(t.globalBlock, func(success bool, failure uintptr) {
		if success {
			answer <- 0
			return
		}
		answer <- t.codeOf(failure)
	})
	t.o.sendQuestion(laContext, t.evaluate, int(p), text, block)
	return laContext, forget, nil
}

func (t *TouchID) newContext() (uintptr, error) {
	raw := t.o.send(t.class, t.alloc)
	if raw == 0 {
		return 0, errNoMemory
	}
	made := t.o.send(raw, t.init) // init takes the reference over
	if made == 0 {
		return 0, errNoMemory
	}
	return made, nil
}

// noCode stands for a refusal that came without an error object.
const noCode = -1

func (t *TouchID) codeOf(failure uintptr) int {
	if failure == 0 {
		return noCode
	}
	if code := t.o.sendInt(failure, t.code); code != 0 {
		return code
	}
	return noCode // 0 would be a yes
}

func (t *TouchID) failed(failure uintptr) error {
	return &macos.NotAuthenticated{Code: t.codeOf(failure)}
}

// A block is how Objective-C takes a function to call back (Block ABI of clang).
// This one is global: whoever keeps it copies nothing and frees nothing. Its
// memory is of Go, does not move, and stays in the table below for the life of
// the process, because the framework may look at its flags after the reply. That
// is 40 bytes for each prompt that a person saw.
type blockLiteral struct {
	isa             uintptr
	flags, reserved int32
	invoke          uintptr
	descriptor      *blockDescriptor
}

type blockDescriptor struct {
	reserved, size uintptr
	signature      *byte
}

const (
	blockIsGlobal     = 1 << 28
	blockHasSignature = 1 << 30
)

// replies are the blocks that were made, by their address, and for those whose
// answer is awaited what to do with it.
var replies = struct {
	sync.Mutex
	made   []*blockLiteral
	await  map[uintptr]func(success bool, failure uintptr)
	invoke uintptr // one callback for all of them: callbacks are never freed
}{await: map[uintptr]func(bool, uintptr){}}

// replyDescriptor is of a block that takes a BOOL and an object and returns nothing.
var replyDescriptor = &blockDescriptor{size: unsafe.Sizeof(blockLiteral{}), signature: &replySignature()[0]}

func replySignature() []byte {
	boolean := "B" // a BOOL is bool on arm64, and signed char on amd64
	if runtime.GOARCH == "amd64" {
		boolean = "c"
	}
	return append([]byte("v20@?0"+boolean+"8@12"), 0)
}

// newReply makes a block that hands its first call to then, on whatever thread it
// comes. After forget it hands over nothing any more.
func newReply(isa uintptr, then func(success bool, failure uintptr)) (block uintptr, forget func()) {
	replies.Lock()
	defer replies.Unlock()
	if replies.invoke == 0 {
		replies.invoke = purego.NewCallback(replied)
	}
	b := &blockLiteral{isa: isa, flags: blockIsGlobal | blockHasSignature, invoke: replies.invoke, descriptor: replyDescriptor}
	block = uintptr(unsafe.Pointer(b))
	replies.made = append(replies.made, b)
	replies.await[block] = then
	return block, func() {
		replies.Lock()
		defer replies.Unlock()
		delete(replies.await, block)
	}
}

// replied is called by the framework. Of a BOOL only the lowest byte is set.
func replied(block, success, failure uintptr) uintptr {
	replies.Lock()
	then := replies.await[block]
	delete(replies.await, block)
	replies.Unlock()
	if then != nil {
		then(success&0xff != 0, failure)
	}
	return 0
}
