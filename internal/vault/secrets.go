package vault

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

var (
	ErrUndeclared = errors.New("the access file declares no credential of this name")
	ErrSet        = errors.New("the secret has a value already")
	ErrNotSet     = errors.New("the secret has no value yet")
	ErrTooShort   = fmt.Errorf("a secret needs at least %d bytes", minSecret)
	ErrTooLong    = fmt.Errorf("a secret has at most %d bytes", maxSecret)
	ErrPlace      = errors.New("the secret is sealed to another place")
	ErrMissing    = errors.New("the secret has no value")
)

const (
	minSecret = 8
	maxSecret = 64 << 10

	kindSSHKey = "ssh-key"
)

// SecretInfo is what may be said of a secret.
type SecretInfo struct {
	Name  string    `json:"name"`
	Kind  string    `json:"kind"`
	Place string    `json:"place"`
	Set   bool      `json:"set"`
	SetAt time.Time `json:"set_at,omitzero"`
}

// Secrets lists the declared secrets by name.
func (v *Vault) Secrets() ([]SecretInfo, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	list := make([]SecretInfo, len(v.open.content.Secrets))
	for i, e := range v.open.content.Secrets {
		list[i] = SecretInfo{Name: e.Name, Kind: e.Kind, Place: e.Place, Set: e.Sealed != nil, SetAt: e.SetAt}
	}
	return list, nil
}

// SetSecret stores the value of a declared secret, sealed to its kind and
// place: a first value, or with rotate another one. One newline at the end is
// dropped; otherwise a value is kept as it is or refused. The caller keeps
// value and wipes it.
func (v *Vault) SetSecret(name string, value []byte, rotate bool) error {
	return v.change(func(o *opened, d *draft) error {
		e := d.content.find(name)
		switch {
		case e == nil:
			return ErrUndeclared
		case e.Sealed != nil && !rotate:
			return ErrSet
		case e.Sealed == nil && rotate:
			return ErrNotSet
		}
		value := dropNewline(value)
		if err := checkValue(e.Kind, value); err != nil {
			return err
		}
		sealed, err := o.sealValue(Declared{e.Name, e.Kind, e.Place}, value)
		if err != nil {
			return err
		}
		e.Sealed, e.SetAt = sealed, now()
		return nil
	})
}

// RemoveSecret forgets a value. The name stays declared.
func (v *Vault) RemoveSecret(name string) error {
	return v.change(func(_ *opened, d *draft) error {
		e := d.content.find(name)
		switch {
		case e == nil:
			return ErrUndeclared
		case e.Sealed == nil:
			return ErrNotSet
		}
		e.Sealed, e.SetAt = nil, time.Time{}
		return nil
	})
}

// Use lends the value of a secret to fn for one call, if d is exactly what the
// value was sealed to. fn must not keep the bytes: they are wiped when it
// returns. fn runs outside the vault's locks.
func (v *Vault) Use(name string, d Declared, fn func(secret []byte) error) error {
	secret, err := v.openSecret(name, d)
	if err != nil {
		return err
	}
	defer clear(secret)
	return fn(secret)
}

// Holds reports whether a secret has exactly the value that SetSecret would
// store. Whoever may ask could replace the value as well.
func (v *Vault) Holds(name string, value []byte) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return false
	}
	e := v.open.content.find(name)
	if e == nil || e.Sealed == nil {
		return false
	}
	secret, err := v.open.openValue(Declared{e.Name, e.Kind, e.Place}, e.Sealed)
	if err != nil {
		return false
	}
	defer clear(secret)
	return subtle.ConstantTimeCompare(secret, dropNewline(value)) == 1
}

func (v *Vault) openSecret(name string, d Declared) ([]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	e := v.open.content.find(name)
	if e == nil || e.Sealed == nil {
		return nil, ErrMissing
	}
	if d != (Declared{e.Name, e.Kind, e.Place}) {
		return nil, ErrPlace
	}
	return v.open.openValue(d, e.Sealed)
}

// A cipher holds a copy of its key in ordinary memory, so none is kept.
func (o *opened) sealValue(d Declared, value []byte) ([]byte, error) {
	return seal(o.values.bytes, value, d.associated())
}

func (o *opened) openValue(d Declared, sealed []byte) ([]byte, error) {
	value, err := open(o.values.bytes, sealed, d.associated())
	if err != nil {
		return nil, damaged(errors.New("a value does not open for its own place"))
	}
	return value, nil
}

// associated is the data that a value is sealed with. Lengths keep one field
// from running into the next.
func (d Declared) associated() []byte {
	b := []byte("yett-vault/1 value")
	for _, s := range []string{d.Name, d.Kind, d.Place} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

// dropNewline takes off the one newline that a pasted or piped value ends in.
func dropNewline(value []byte) []byte {
	if rest, ok := bytes.CutSuffix(value, []byte("\n")); ok {
		return bytes.TrimSuffix(rest, []byte("\r"))
	}
	return value
}

// now has no monotonic part and one encoding.
func now() time.Time { return time.Now().UTC().Round(time.Millisecond) }
