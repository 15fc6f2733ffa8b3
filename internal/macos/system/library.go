// Package system is the calls into macOS that evidence needs, and nothing
// else: libSystem for what the kernel knows of a process, CoreFoundation and
// Security.framework for whether live code satisfies a requirement. What the
// answers mean stands in internal/macos. IOKit tells of sleep, and CoreGraphics
// whether the screen is locked.
//
// The libraries are opened at run time (purego), so that no C compiler and no
// Apple header is needed to build. A symbol that is missing makes Open fail;
// nothing here panics for want of one. The paths are parameters: tests on other
// systems open a small stand-in that is written in C.
//
// Every reference that a Create or Copy function returns is released by the
// function that asked for it. Deadlines: the calls are answered by the kernel or
// by libraries of this process and take no time of others, except
// SecCodeCheckValidity, which reads the program's file.
package system

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ebitengine/purego"
)

// Paths of the libraries on macOS. They are in the loader's shared cache and
// need not exist as files.
const (
	LibSystem      = "/usr/lib/libSystem.B.dylib"
	CoreFoundation = "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation"
	Security       = "/System/Library/Frameworks/Security.framework/Security"
)

// ErrMissing means that the system lacks a library or a symbol. What depends on
// it refuses.
var ErrMissing = errors.New("the system lacks what the evidence needs")

// library is one opened library.
type library struct {
	path   string
	handle uintptr
}

func open(path string) (library, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return library{}, fmt.Errorf("%w: %s: %w", ErrMissing, path, err)
	}
	return library{path, h}, nil
}

// binding is a symbol of a library and where it goes: a pointer to a function,
// or to a uintptr for the address of a constant.
type binding struct {
	name string
	to   any
}

// bind looks up every symbol first and sets them all or none.
func (l library) bind(bindings []binding) error {
	found := make([]uintptr, len(bindings))
	var missing []string
	for i, b := range bindings {
		at, err := purego.Dlsym(l.handle, b.name)
		if err != nil || at == 0 {
			missing = append(missing, b.name)
		}
		found[i] = at
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s has no %v", ErrMissing, l.path, missing)
	}
	for i, b := range bindings {
		if address, ok := b.to.(*uintptr); ok {
			*address = found[i]
			continue
		}
		purego.RegisterFunc(b.to, found[i])
	}
	return nil
}

// Symbols are the names of everything that is asked of the system, by library,
// sorted. A test holds them against a kept list.
func Symbols() map[string][]string {
	k, c, s, p, w := &Kernel{}, &foundation{}, &Code{}, &Power{}, &Screen{}
	t, o, items := &TouchID{}, &runtimeOfObjC{}, &Keychain{}
	return map[string][]string{
		LibSystem:      names(k.bindings(), p.queueBindings(), t.blockSymbols()),
		CoreFoundation: names(c.bindings(), w.booleanBindings(), items.truth()),
		Security:       names(s.bindings(), items.bindings()),
		LibObjC:        names(o.bindings()),
		IOKit:          names(p.bindings()),
		CoreGraphics:   names(w.bindings()),
	}
}

// Messages are the methods of Objective-C that are called, by class, sorted. The
// class LAContext is of LocalAuthentication.
func Messages() map[string][]string {
	all, t := map[string][]string{}, &TouchID{}
	for class, methods := range map[string][]method{"LAContext": t.contextMethods(), "NSError": t.errorMethods()} {
		for _, m := range methods {
			all[class] = append(all[class], m.name)
		}
		slices.Sort(all[class])
	}
	return all
}

func names(bindings ...[]binding) []string {
	var list []string
	for _, b := range slices.Concat(bindings...) {
		list = append(list, b.name)
	}
	slices.Sort(list)
	return slices.Compact(list) // each form of objc_msgSend is a binding
}
