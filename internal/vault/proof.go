package vault

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
)

// ErrWrongProof: a proof that no slot's approval key made for this message.
var ErrWrongProof = errors.New("the proof is not valid for this")

// Proof is what the approver sends instead of a passphrase: HMAC-SHA256 of the
// message under the approval key.
func Proof(approvalKey, message []byte) []byte {
	m := hmac.New(sha256.New, approvalKey)
	m.Write(message)
	return m.Sum(nil)
}

// VerifyProof accepts a proof made with the approval key of any slot. It takes
// the same time whichever slot made it, or none.
func (v *Vault) VerifyProof(message, mac []byte) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.open == nil {
		return ErrLocked
	}
	valid := false
	for i := range v.open.keys.slots() {
		if hmac.Equal(Proof(v.open.keys.approval(i), message), mac) {
			valid = true
		}
	}
	if !valid {
		return ErrWrongProof
	}
	return nil
}
