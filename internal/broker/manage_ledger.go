package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

// maxNote is the longest statement of a person in bytes.
const maxNote = 2000

func checkNote(note string) *wire.Error {
	if len(note) > maxNote {
		return wire.Errorf(wire.CodeBadRequest, "The note is longer than %d bytes.", maxNote)
	}
	return nil
}

// quarantined is nil, or the refusal of an action: the records were changed by
// something else than the broker.
func (b *Broker) quarantined() *wire.Error {
	if b.Ledger.Quarantined() == nil {
		return nil
	}
	return wire.NewError(wire.CodeQuarantined)
}

// showQuarantine says what was found, to whoever may read.
func (o *operator) showQuarantine() (any, *wire.Error) {
	var q wire.Quarantine
	if err := o.b.Ledger.Quarantined(); err != nil {
		q.Quarantined = true
		if o.mayRead() {
			q.Found = err.Error()
		}
	}
	return q, nil
}

// acknowledge records the statement of a person about what was found, keeps
// the old heads as evidence, and lets actions run again.
func (o *operator) acknowledge(r wire.Acknowledge) (any, *wire.Error) {
	b := o.b
	if fail := checkNote(r.Note); fail != nil {
		return nil, fail
	}
	open := b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	found := b.Ledger.Quarantined()
	if found == nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "There is nothing to acknowledge: the ledger was not found changed.").
			Then("Nothing needs to be done. yett audit verify looks at it again.")
	}
	b.heading.Lock()
	defer b.heading.Unlock()
	beside, kept, err := b.Ledger.KeepHeadAside()
	if err != nil {
		return nil, b.ledgerFailed(err)
	}
	inVault, err := b.Vault.LedgerHead()
	if err != nil {
		return nil, o.vaultFailed("reading the ledger's head", err)
	}
	row := o.managementRow("ledger.acknowledged", map[string]any{"note": r.Note},
		map[string]any{"found": found.Error(), "head": string(beside), "head_kept_in": kept, "vault_head": string(inVault)})
	ctx, cancel := context.WithTimeout(context.Background(), acknowledgeTime)
	defer cancel()
	n, err := b.Ledger.Acknowledge(ctx, open.opener, row)
	if err != nil {
		return nil, b.ledgerFailed(err)
	}
	b.Log.Warn("a person acknowledged that the ledger was changed", "row", n)
	// A crash from here on finds the old heads, and the quarantine again.
	if b.signHead(open) {
		if err := b.Vault.SetLedgerHead(open.heads.newest); err != nil {
			return nil, o.vaultFailed("keeping the ledger's head", err)
		}
		open.heads.vaultsSize = open.heads.size
		b.signHead(open)
	}
	return wire.Acknowledged{Row: n, Found: found.Error(), HeadKeptIn: kept}, nil
}

// export records that the ledger is copied out, and opens reading for it.
func (o *operator) export(r wire.Export) (any, *wire.Error) {
	if fail := o.row("ledger.exported", map[string]any{"format": clip(r.Format), "full": r.Full}, nil); fail != nil {
		return nil, fail
	}
	o.openReading()
	return wire.Empty{}, nil
}

// showOperation shows one operation with its rows, to whoever may read.
func (o *operator) showOperation(r wire.OperationID) (any, *wire.Error) {
	open := o.b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	op, ok, err := o.b.findOperation(r.OperationID)
	if err != nil {
		return nil, o.b.ledgerFailed(err)
	}
	if !ok || !o.mayRead() && op.Caller != subjectKey(o.who.evidence()) {
		return nil, noOperation()
	}
	shown := wire.OperationShown{OperationID: op.ID, State: string(op.State), Code: op.Code, SessionID: op.Session,
		Unsafe: op.Unsafe, CreatedAt: op.CreatedAt, IntentRow: op.Intent, LastRow: op.LastRow, ResolvedRow: op.Resolved,
		Bodies: o.b.Bodies.StreamsOf(op.Intent, op.Session)}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	before := int64(0)
	for _, n := range []int64{op.Intent, op.LastRow, op.Resolved} {
		if n <= before {
			continue
		}
		before = n
		err := o.b.Ledger.Rows(ctx, open.opener, n, func(row ledger.Row) error {
			shown.Rows = append(shown.Rows, shortened(row))
			return errEnough
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, o.b.ledgerFailed(err)
		}
	}
	return shown, nil
}

func noOperation() *wire.Error {
	return wire.Errorf(wire.CodeBadRequest, "There is no such operation.").
		Then("Find its id in: yett activity.")
}

// resolveOperation records what a person says became of an action whose outcome
// is unknown. The operation stays indeterminate; equal ones may run again.
func (o *operator) resolveOperation(r wire.OperationResolve) (any, *wire.Error) {
	if fail := checkNote(r.Note); fail != nil {
		return nil, fail
	}
	if fail := o.b.quarantined(); fail != nil {
		return nil, fail
	}
	said := "it did not happen"
	if r.Happened {
		said = "it happened"
	}
	row := o.managementRow("operation.resolved", map[string]any{"operation_id": clip(r.OperationID), "happened": r.Happened, "note": r.Note},
		map[string]any{"detail": said})
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	err := o.b.Ledger.Resolve(ctx, r.OperationID, row)
	switch {
	case errors.Is(err, ledger.ErrNoOperation):
		if _, ok, _ := o.b.findOperation(r.OperationID); !ok {
			return nil, noOperation()
		}
		return nil, wire.Errorf(wire.CodeBadRequest, "Its outcome is known: there is nothing to resolve.")
	case errors.Is(err, ledger.ErrTransition):
		return nil, wire.Errorf(wire.CodeBadRequest, "It cannot be resolved: %v.", errors.Unwrap(err)).
			Then("Look at it: yett operation show " + clip(r.OperationID) + ".")
	case err != nil:
		return nil, o.b.ledgerFailed(err)
	}
	return wire.Empty{}, nil
}

// shortened keeps a row within one frame: of one that is too long it says so.
func shortened(row ledger.Row) []byte {
	raw := marshal(row)
	if len(raw) > maxActivityBytes/3 {
		row.Request = marshal(map[string]any{"omitted": "the row is too long for a list", "bytes": len(raw)})
		raw = marshal(row)
	}
	return bytes.Clone(raw)
}

// logKey makes the key that signs heads.
func (b *Broker) logKey() (*ledger.LogKey, error) {
	seed, err := b.Vault.Subkey(ledger.HeadKeyPurpose)
	if err != nil {
		return nil, fmt.Errorf("deriving the log's key: %w", err)
	}
	defer clear(seed)
	return ledger.NewLogKey(seed)
}
