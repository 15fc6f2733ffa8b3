package vault

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// content is the part of the payload that is not keys. A published content is
// never changed; a change works on a clone.
type content struct {
	Policy     []byte     `json:"policy"` // null until one was applied
	LedgerHead []byte     `json:"ledger_head"`
	Secrets    []entry    `json:"secrets"` // by name
	Unrecorded []Note     `json:"unrecorded,omitempty"`
	Approvers  []Approver `json:"approvers,omitempty"` // as they were added
}

// entry is one declared secret.
type entry struct {
	Name   string    `json:"name"`
	Kind   string    `json:"kind"`
	Place  string    `json:"place"`
	SetAt  time.Time `json:"set_at"`
	Sealed []byte    `json:"sealed"` // nonce and value; null while it has none
}

// clone is shallow: policies and sealed values are replaced, never edited.
func (c *content) clone() *content {
	d := *c
	d.Secrets = append([]entry(nil), c.Secrets...)
	d.Unrecorded = append([]Note(nil), c.Unrecorded...)
	d.Approvers = append([]Approver(nil), c.Approvers...)
	return &d
}

func (c *content) find(name string) *entry {
	for i := range c.Secrets {
		if c.Secrets[i].Name == name {
			return &c.Secrets[i]
		}
	}
	return nil
}

func (c *content) check() error {
	for i, e := range c.Secrets {
		if i > 0 && c.Secrets[i-1].Name >= e.Name {
			return errors.New("secrets out of order")
		}
	}
	for i := range c.Approvers {
		if err := c.Approvers[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// openPayload opens and checks everything that the payload says, the header's
// audit key included.
func (f *file) openPayload(dataKey []byte) (*keyring, *content, error) {
	plain, err := open(dataKey, f.sealed, f.bound)
	if err != nil {
		return nil, nil, errors.New("its payload does not open")
	}
	defer clear(plain)
	size := keyringSize(len(f.header.Slots)) - keySize // all but the data key
	if len(plain) < size {
		return nil, nil, errors.New("its payload is cut short")
	}
	var c content
	if err := decodeExact(plain[size:], &c); err != nil {
		return nil, nil, fmt.Errorf("reading its payload: %w", err)
	}
	if err := c.check(); err != nil {
		return nil, nil, fmt.Errorf("reading its payload: %w", err)
	}
	keys := newKeyring(dataKey, plain[:size])
	public, err := auditPublic(keys.auditPrivate())
	if err == nil && !bytes.Equal(public, f.header.AuditPublicKey) {
		err = errors.New("its audit key is not the sealed one")
	}
	if err != nil {
		keys.destroy()
		return nil, nil, err
	}
	return keys, &c, nil
}

// payload puts keys and content together; the caller wipes it. Keys do not
// pass through the JSON encoder, which keeps its buffers.
func payload(keys *keyring, c *content) ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := make([]byte, 0, keys.size()+len(text))
	return append(append(p, keys.sealable()...), text...), nil
}

func auditKEM() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

func newAuditKey() (private, public []byte, err error) {
	k, err := auditKEM().GenerateKey()
	if err != nil {
		return nil, nil, err
	}
	private, err = k.Bytes()
	return private, k.PublicKey().Bytes(), err
}

func auditPublic(private []byte) ([]byte, error) {
	public := make([]byte, keySize)
	var err error
	secretly(func() {
		var k hpke.PrivateKey
		if k, err = auditKEM().NewPrivateKey(private); err == nil {
			copy(public, k.PublicKey().Bytes())
		}
	})
	if err != nil {
		return nil, errors.New("its audit key is not a key")
	}
	return public, nil
}
