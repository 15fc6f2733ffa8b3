package system

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"
)

// ref is a reference to an object of CoreFoundation. 0 is none.
type ref uintptr

const utf8 = 0x08000100 // kCFStringEncodingUTF8

// numberSInt64 is kCFNumberSInt64Type.
const numberSInt64 = 4

// maxObject bounds what is copied out of an object of the framework.
const maxObject = 1 << 20

// foundation is the calls into CoreFoundation.
type foundation struct {
	release      func(ref)
	dataCreate   func(allocator ref, b *byte, n int) ref
	dataLength   func(ref) int
	dataBytes    func(ref) unsafe.Pointer
	stringCreate func(allocator ref, b *byte, n int, encoding uint32, external bool) ref
	stringCopy   func(s ref, to *byte, size int, encoding uint32) bool
	stringLength func(ref) int
	dictCreate   func(allocator ref, keys, values *ref, n int, onKeys, onValues uintptr) ref
	dictValue    func(dict, key ref) ref
	numberValue  func(n ref, kind int, to *int64) bool
	typeOf       func(ref) uint
	dataType     func() uint
	stringType   func() uint
	numberType   func() uint

	keyCallbacks, valueCallbacks uintptr
}

func (c *foundation) bindings() []binding {
	return []binding{
		{"CFRelease", &c.release},
		{"CFDataCreate", &c.dataCreate},
		{"CFDataGetLength", &c.dataLength},
		{"CFDataGetBytePtr", &c.dataBytes},
		{"CFStringCreateWithBytes", &c.stringCreate},
		{"CFStringGetCString", &c.stringCopy},
		{"CFStringGetLength", &c.stringLength},
		{"CFDictionaryCreate", &c.dictCreate},
		{"CFDictionaryGetValue", &c.dictValue},
		{"CFNumberGetValue", &c.numberValue},
		{"CFGetTypeID", &c.typeOf},
		{"CFDataGetTypeID", &c.dataType},
		{"CFStringGetTypeID", &c.stringType},
		{"CFNumberGetTypeID", &c.numberType},
		{"kCFTypeDictionaryKeyCallBacks", &c.keyCallbacks},
		{"kCFTypeDictionaryValueCallBacks", &c.valueCallbacks},
	}
}

var errNoMemory = errors.New("CoreFoundation gave no object")

// newData copies b into an object, which the caller releases.
func (c *foundation) newData(b []byte) (ref, error) {
	if r := c.dataCreate(0, unsafe.SliceData(b), len(b)); r != 0 {
		return r, nil
	}
	return 0, errNoMemory
}

// newString copies s into an object, which the caller releases.
func (c *foundation) newString(s string) (ref, error) {
	if r := c.stringCreate(0, unsafe.StringData(s), len(s), utf8, false); r != 0 {
		return r, nil
	}
	return 0, errNoMemory
}

// entry is one of a dictionary.
type entry struct{ key, value ref }

// newDictionary makes a dictionary, which the caller releases. It retains keys
// and values.
func (c *foundation) newDictionary(entries ...entry) (ref, error) {
	keys, values := make([]ref, len(entries)), make([]ref, len(entries))
	for i, e := range entries {
		keys[i], values[i] = e.key, e.value
	}
	if r := c.dictCreate(0, unsafe.SliceData(keys), unsafe.SliceData(values), len(entries), c.keyCallbacks, c.valueCallbacks); r != 0 {
		return r, nil
	}
	return 0, errNoMemory
}

// text reads a string of a dictionary. It is empty where there is none. An
// object of another kind is an error.
func (c *foundation) text(dict, key ref) (string, error) {
	r := c.dictValue(dict, key)
	if r == 0 {
		return "", nil
	}
	if c.typeOf(r) != c.stringType() {
		return "", errors.New("a text is of another type")
	}
	n := c.stringLength(r)
	if n < 0 || n > maxObject {
		return "", fmt.Errorf("a text of %d characters", n)
	}
	buf := make([]byte, 4*n+1) // a UTF-16 unit becomes at most three bytes
	if !c.stringCopy(r, &buf[0], len(buf), utf8) {
		return "", errors.New("a text that is no UTF-8")
	}
	return string(buf[:bytes.IndexByte(buf, 0)]), nil
}

// data copies the bytes of a dictionary's entry, nil where there is none.
func (c *foundation) data(dict, key ref) ([]byte, error) {
	r := c.dictValue(dict, key)
	if r == 0 {
		return nil, nil
	}
	return c.bytes(r)
}

// bytes copies the bytes of an object.
func (c *foundation) bytes(r ref) ([]byte, error) {
	if c.typeOf(r) != c.dataType() {
		return nil, errors.New("bytes are of another type")
	}
	n := c.dataLength(r)
	if n < 0 || n > maxObject {
		return nil, fmt.Errorf("%d bytes", n)
	}
	return bytes.Clone(unsafe.Slice((*byte)(c.dataBytes(r)), n)), nil
}

// number reads a number of a dictionary; ok is false where there is none.
func (c *foundation) number(dict, key ref) (n int64, ok bool, err error) {
	r := c.dictValue(dict, key)
	if r == 0 {
		return 0, false, nil
	}
	if c.typeOf(r) != c.numberType() || !c.numberValue(r, numberSInt64, &n) {
		return 0, false, errors.New("a number is of another type")
	}
	return n, true, nil
}
