package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
)

// approvals checks again, from the rows alone, what passkeys and Touch ID keys
// approved: each signature, over the card, choice and end that the row tells, and
// that the key was enrolled by an earlier row, as what it signed as, and not
// removed since.
type approvals struct {
	enrolled map[string]string // kind and public key by id
	checked  int
}

var errNotEnrolled = errors.New("no earlier row enrolled the key that approved it")

func (c *approvals) look(row ledger.Row) error {
	switch row.Kind {
	case "passkey.added", "passkey.removed", "touchid.added", "touchid.removed":
		var k approval.Passkey
		if err := json.Unmarshal(row.Request, &k); err != nil {
			return fmt.Errorf("reading an approver's key: %w", err)
		}
		if c.enrolled == nil {
			c.enrolled = map[string]string{}
		}
		kind, what, _ := strings.Cut(row.Kind, ".")
		if what == "removed" {
			delete(c.enrolled, string(k.ID))
		} else {
			c.enrolled[string(k.ID)] = kind + " " + string(k.Key)
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
	case "proof.passkey", "proof.touchid":
		return c.act(row)
	}
	return nil
}

func (c *approvals) act(row ledger.Row) error {
	var r struct {
		approval.Value
		Sum string `json:"request_sha256"`
	}
	var o struct{ Proof approval.Proven }
	err := errors.Join(json.Unmarshal(row.Request, &r), json.Unmarshal(row.Outcome, &o))
	if err != nil {
		return fmt.Errorf("reading a proof: %w", err)
	}
	sum, err := hex.DecodeString(r.Sum)
	switch {
	case err != nil:
	case r.Sum == "":
		err = o.Proof.CheckValue(r.Value)
	default:
		err = o.Proof.CheckAct(r.Method, sum)
	}
	if err != nil {
		return err
	}
	return c.known(o.Proof)
}

func (c *approvals) known(p approval.Proven) error {
	if !p.Signed() {
		return nil
	}
	c.checked++
	if c.enrolled[string(p.KeyID())] != p.By+" "+string(p.Key) {
		return errNotEnrolled
	}
	return nil
}
