package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
)

// approvals checks again, from the rows alone, what passkeys approved: each
// signature, over the card, choice and end that the row tells, and that the
// passkey was enrolled by an earlier row and not removed since.
type approvals struct {
	enrolled map[string]string // public key by credential id
	checked  int
}

var errNotEnrolled = errors.New("no earlier row enrolled the passkey that approved it")

func (c *approvals) look(row ledger.Row) error {
	switch row.Kind {
	case "passkey.added", "passkey.removed":
		var k approval.Passkey
		if err := json.Unmarshal(row.Request, &k); err != nil {
			return fmt.Errorf("reading a passkey: %w", err)
		}
		if c.enrolled == nil {
			c.enrolled = map[string]string{}
		}
		if row.Kind == "passkey.removed" {
			delete(c.enrolled, string(k.ID))
		} else {
			c.enrolled[string(k.ID)] = string(k.Key)
		}
	case "decision":
		d, err := approval.ReadDecided(row.Verified, row.Granted, row.Request, row.Outcome)
		if err == nil {
			err = d.Check()
		}
		if err != nil {
			return err
		}
		return c.known(d.Proven)
	case "proof.passkey":
		return c.act(row)
	}
	return nil
}

func (c *approvals) act(row ledger.Row) error {
	var r struct {
		Method string
		Sum    string `json:"request_sha256"`
	}
	var o struct{ Proof approval.Proven }
	err := errors.Join(json.Unmarshal(row.Request, &r), json.Unmarshal(row.Outcome, &o))
	if err != nil {
		return fmt.Errorf("reading a proof: %w", err)
	}
	if r.Sum == "" && o.Proof.Assertion == nil {
		return nil // about a value: the row says only which passkey it was
	}
	sum, err := hex.DecodeString(r.Sum)
	if err == nil {
		err = o.Proof.CheckAct(r.Method, sum)
	}
	if err != nil {
		return err
	}
	return c.known(o.Proof)
}

func (c *approvals) known(p approval.Proven) error {
	if p.By != approval.ByPasskey {
		return nil
	}
	c.checked++
	if c.enrolled[string(p.Assertion.CredentialID)] != string(p.Key) {
		return errNotEnrolled
	}
	return nil
}
