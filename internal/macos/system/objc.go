package system

import (
	"fmt"
	"runtime"
)

// Paths of the libraries that ask the person. LocalAuthentication has no function
// that is called: its class is found through the runtime of Objective-C.
const (
	LibObjC             = "/usr/lib/libobjc.A.dylib"
	LocalAuthentication = "/System/Library/Frameworks/LocalAuthentication.framework/LocalAuthentication"
)

// runtimeOfObjC is the calls into the runtime of Objective-C. objc_msgSend has the
// form of the method that is called, so each form that is used stands here once.
type runtimeOfObjC struct {
	getClass     func(name string) uintptr
	selector     func(name string) uintptr
	methodOf     func(class, selector uintptr) uintptr
	release      func(object uintptr)
	poolPush     func() uintptr
	poolPop      func(pool uintptr)
	send         func(object, selector uintptr) uintptr
	sendInt      func(object, selector uintptr) int
	sendText     func(object, selector uintptr, text ref)
	sendPolicy   func(object, selector uintptr, policy int, failure *uintptr) bool
	sendQuestion func(object, selector uintptr, policy int, reason ref, reply uintptr)
}

func (o *runtimeOfObjC) bindings() []binding {
	return []binding{
		{"objc_getClass", &o.getClass},
		{"sel_registerName", &o.selector},
		{"class_getInstanceMethod", &o.methodOf},
		{"objc_release", &o.release},
		{"objc_autoreleasePoolPush", &o.poolPush},
		{"objc_autoreleasePoolPop", &o.poolPop},
		{"objc_msgSend", &o.send},
		{"objc_msgSend", &o.sendInt},
		{"objc_msgSend", &o.sendText},
		{"objc_msgSend", &o.sendPolicy},
		{"objc_msgSend", &o.sendQuestion},
	}
}

// method is a method of a class and where its selector goes.
type method struct {
	name string
	to   *uintptr
}

// bindClass finds a class and its methods. A message to a method that is missing
// would end the process, so each is asked for first.
func (o *runtimeOfObjC) bindClass(name string, methods []method) (class uintptr, err error) {
	if class = o.getClass(name); class == 0 {
		return 0, fmt.Errorf("%w: there is no class %s", ErrMissing, name)
	}
	for _, m := range methods {
		if *m.to = o.selector(m.name); *m.to == 0 || o.methodOf(class, *m.to) == 0 {
			return 0, fmt.Errorf("%w: %s has no method %s", ErrMissing, name, m.name)
		}
	}
	return class, nil
}

// pooled runs f with a pool that takes what methods release later. Such objects
// belong to the thread, so f stays on it.
func (o *runtimeOfObjC) pooled(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := o.poolPush()
	defer o.poolPop(pool)
	f()
}
