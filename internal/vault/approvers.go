package vault

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// KindTouchID is the kind of an approver whose signatures count after a finger on
// this Mac; passkeys have none.
const KindTouchID = "touchid"

// Approver is a passkey, or a Touch ID key, whose answers count as the person's
// proof. Its public key lies in the sealed part of the vault, so that nobody adds
// one who could not open the vault.
type Approver struct {
	Kind       string    `json:"kind,omitempty"`
	Name       string    `json:"name"`
	ID         []byte    `json:"credential_id"`
	Key        []byte    `json:"public_key"` // COSE
	Count      uint32    `json:"count"`      // of its signatures, as it said last; 0 for one that does not count
	Transports []string  `json:"transports,omitempty"`
	AddedAt    time.Time `json:"added_at"`
}

const (
	maxApprovers     = 32
	maxApproverField = 2048
)

var (
	ErrApproverThere = errors.New("there is an approver of this name, or this one is there already")
	ErrNoApprover    = errors.New("there is no such approver")
	// ErrCounted: a passkey's count of signatures was there already.
	ErrCounted = errors.New("the passkey's counter went back")
)

// Approvers lists them in the order in which they were added.
func (v *Vault) Approvers() ([]Approver, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	return slices.Clone(v.open.content.Approvers), nil
}

// AddApprover adds one. Called only with the person's proof.
func (v *Vault) AddApprover(a Approver) error {
	if err := a.check(); err != nil {
		return err
	}
	a.AddedAt = a.AddedAt.UTC().Round(time.Millisecond)
	return v.change(func(_ *opened, d *draft) error {
		if len(d.content.Approvers) >= maxApprovers {
			return ErrTooLarge
		}
		for _, have := range d.content.Approvers {
			if have.Name == a.Name || bytes.Equal(have.ID, a.ID) {
				return ErrApproverThere
			}
		}
		d.content.Approvers = append(d.content.Approvers, a)
		return nil
	})
}

// RemoveApprover removes one by its name. What opens the vault stays as
// it is, so a proof by passphrase is always left.
func (v *Vault) RemoveApprover(name string) error {
	return v.change(func(_ *opened, d *draft) error {
		i := slices.IndexFunc(d.content.Approvers, func(a Approver) bool { return a.Name == name })
		if i < 0 {
			return ErrNoApprover
		}
		d.content.Approvers = slices.Delete(d.content.Approvers, i, i+1)
		if len(d.content.Approvers) == 0 {
			d.content.Approvers = nil
		}
		return nil
	})
}

// CountApprover keeps a passkey's count of signatures, if it went on. Of two
// answers with one count the second is refused.
func (v *Vault) CountApprover(id []byte, count uint32) error {
	return v.change(func(_ *opened, d *draft) error {
		for i := range d.content.Approvers {
			a := &d.content.Approvers[i]
			if !bytes.Equal(a.ID, id) {
				continue
			}
			if count <= a.Count {
				return ErrCounted
			}
			a.Count = count
			return nil
		}
		return ErrNoApprover
	})
}

func (a *Approver) check() error {
	switch {
	case a.Kind != "" && a.Kind != KindTouchID:
		return errors.New("an approver of an unknown kind")
	case a.Name == "" || len(a.Name) > 64 || !utf8.ValidString(a.Name):
		return errors.New("an approver's name has 1 to 64 bytes of text")
	case len(a.ID) == 0 || len(a.ID) > 1023:
		return errors.New("an approver's id has 1 to 1023 bytes")
	case len(a.Key) == 0 || len(a.Key) > maxApproverField:
		return fmt.Errorf("an approver's public key has 1 to %d bytes", maxApproverField)
	case len(a.Transports) > 8 || slices.ContainsFunc(a.Transports, func(t string) bool { return len(t) > 32 || !utf8.ValidString(t) }):
		return errors.New("an approver has at most 8 transports of 32 bytes")
	}
	return nil
}
