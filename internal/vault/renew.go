package vault

import (
	"crypto/subtle"
	"errors"
)

// ErrReplaced: the value is not the one that was lent any more.
var ErrReplaced = errors.New("the secret has another value by now")

// RenewSecret replaces the value that Use lent by the one that its place gave for it,
// without a person: a refresh token that its endpoint rotates. It is on disk
// when RenewSecret returns. If the person stored another value meanwhile, that one
// stays. The caller keeps both values and wipes them.
func (v *Vault) RenewSecret(name string, lent Declared, old, value []byte) error {
	return v.change(func(o *opened, d *draft) error {
		e := d.content.find(name)
		switch {
		case e == nil || e.Sealed == nil:
			return ErrReplaced
		case lent != (Declared{e.Name, e.Kind, e.Place}):
			return ErrPlace
		}
		stored, err := o.openValue(lent, e.Sealed)
		if err != nil {
			return err
		}
		defer clear(stored)
		if subtle.ConstantTimeCompare(stored, old) != 1 {
			return ErrReplaced
		}
		if err := checkValue(e.Kind, value); err != nil {
			return err
		}
		sealed, err := o.sealValue(lent, value)
		if err != nil {
			return err
		}
		e.Sealed, e.SetAt = sealed, now()
		return nil
	})
}
