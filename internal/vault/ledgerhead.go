package vault

import "bytes"

// LedgerHead is what SetLedgerHead stored last, nil if nothing was.
func (v *Vault) LedgerHead() ([]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return nil, ErrLocked
	}
	return bytes.Clone(v.open.content.LedgerHead), nil
}

// SetLedgerHead records how far the ledger is, so that a ledger that was set
// back alone is noticed at the next unlock.
func (v *Vault) SetLedgerHead(head []byte) error {
	if len(head) > maxField {
		return ErrTooLarge
	}
	return v.change(func(_ *opened, d *draft) error {
		d.content.LedgerHead = append([]byte{}, head...)
		return nil
	})
}
