package vault

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxPolicy   = 1 << 20
	maxDeclared = 4096
	maxField    = 4096
)

// Declared is a secret as the access file declares it. Place is the canonical
// text of where the value may go: an origin, or the sorted user@host:port of
// every host of an ssh key.
type Declared struct{ Name, Kind, Place string }

// Policy is the access file that was applied last, nil if none was.
func (v *Vault) Policy() ([]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	return bytes.Clone(v.open.content.Policy), nil
}

// Apply stores a policy and what it declares, in one save. It is called only
// with the person's proof. A value whose kind or place changed, or which is no
// longer declared, is voided, and its name returned; but an ssh key whose place
// changed is sealed to the new one, because a host was added to it or taken
// from it under that same proof.
func (v *Vault) Apply(policy []byte, declared []Declared) (voided []string, err error) {
	if err := checkDeclared(policy, declared); err != nil {
		return nil, fmt.Errorf("applying the access file: %w", err)
	}
	declared = slices.SortedFunc(slices.Values(declared), func(a, b Declared) int { return strings.Compare(a.Name, b.Name) })
	err = v.change(func(o *opened, d *draft) error {
		old := d.content.Secrets
		d.content.Policy = append([]byte{}, policy...)
		d.content.Secrets = make([]entry, len(declared))
		for i, want := range declared {
			d.content.Secrets[i] = entry{Name: want.Name, Kind: want.Kind, Place: want.Place}
		}
		for _, e := range old {
			if e.Sealed == nil {
				continue
			}
			kept, err := o.carry(e, d.content.find(e.Name))
			if err != nil {
				return fmt.Errorf("applying the access file: %w", err)
			}
			if !kept {
				voided = append(voided, e.Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return voided, nil
}

// carry takes a value over to what its name is declared as now, if it may.
func (o *opened) carry(from entry, to *entry) (kept bool, err error) {
	switch {
	case to == nil || to.Kind != from.Kind:
		return false, nil
	case to.Place == from.Place:
		to.Sealed = from.Sealed
	case from.Kind == kindSSHKey:
		value, err := o.openValue(Declared{from.Name, from.Kind, from.Place}, from.Sealed)
		if err != nil {
			return false, err
		}
		to.Sealed, err = o.sealValue(Declared{to.Name, to.Kind, to.Place}, value)
		clear(value)
		if err != nil {
			return false, err
		}
	default:
		return false, nil
	}
	to.SetAt = from.SetAt
	return true, nil
}

func checkDeclared(policy []byte, declared []Declared) error {
	if len(policy) > maxPolicy || len(declared) > maxDeclared {
		return ErrTooLarge
	}
	seen := make(map[string]bool, len(declared))
	for _, d := range declared {
		if d.Name == "" || d.Kind == "" {
			return errors.New("a credential without name or kind")
		}
		if seen[d.Name] {
			return errors.New("two credentials of one name")
		}
		seen[d.Name] = true
		for _, s := range []string{d.Name, d.Kind, d.Place} {
			if len(s) > maxField || !utf8.ValidString(s) {
				return errors.New("a credential with an overlong or garbled text")
			}
		}
	}
	return nil
}
