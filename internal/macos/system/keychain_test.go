package system

import (
	"errors"
	"testing"

	"github.com/yett-broker/yett/internal/macos"
)

// TestKeychain: an item is made once, read, and removed; what the keychain refuses
// is an error with its code; every object is released.
func TestKeychain(t *testing.T) {
	path := standin(t)
	k, err := OpenKeychain(path, path)
	if err != nil {
		t.Fatal(err)
	}
	var refuse func(status int32)
	var live func() int32
	l, err := open(path)
	if err == nil {
		err = l.bind([]binding{{"standin_keychain", &refuse}, {"standin_live", &live}})
	}
	if err != nil {
		t.Fatal(err)
	}
	before := live()
	want := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	value := []byte("a share\x00of bytes")
	want("adding", k.Add("yett", "one", "Yett", value), nil)
	want("adding again", k.Add("yett", "one", "Yett", []byte("another")), macos.ErrItemThere)
	want("adding another", k.Add("yett", "two", "Yett", []byte("two")), nil)
	if got, err := k.Read("yett", "one"); err != nil || string(got) != string(value) {
		t.Errorf("%q, %v", got, err)
	}
	_, err = k.Read("other", "one")
	want("reading another service's", err, macos.ErrNoItem)
	want("deleting", k.Delete("yett", "one"), nil)
	want("deleting again", k.Delete("yett", "one"), macos.ErrNoItem)
	_, err = k.Read("yett", "one")
	want("reading what is gone", err, macos.ErrNoItem)
	if got, err := k.Read("yett", "two"); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	for _, code := range []int32{-128, -25293, -25308} {
		refuse(code)
		no := &macos.KeychainError{Code: code}
		_, err := k.Read("yett", "two")
		want("reading", err, no)
		want("adding", k.Add("yett", "three", "Yett", value), no)
		want("deleting", k.Delete("yett", "two"), no)
	}
	refuse(1)
	_, err = k.Read("yett", "two")
	want("all is well, and no object", err, errNoMemory)
	refuse(2)
	if got, err := k.Read("yett", "two"); err == nil {
		t.Errorf("an object of another kind: %q", got)
	}
	refuse(0)
	_, err = k.Read("yett", "")
	for _, err := range []error{err, k.Delete("yett", ""), k.Delete("", "two"), k.Add("", "", "", value)} {
		if err == nil {
			t.Error("an item without a name was looked for")
		}
	}
	if got, err := k.Read("yett", "two"); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	if now := live(); now != before {
		t.Errorf("%d objects were not released", now-before)
	}
}
