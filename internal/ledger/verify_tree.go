package ledger

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/mod/sumdb/tlog"
)

// checkNode compares a node that the leaves make with the one that is kept.
// The rows that only the journal has make nodes that the database has not.
func (v *verifier) checkNode(level int, i int64, hash tlog.Hash) {
	if v.node == nil || (i+1)<<level > v.head {
		return
	}
	var stored []byte
	if err := v.node.QueryRow(level, i).Scan(&stored); err != nil || string(stored) != string(hash[:]) {
		v.problem("the tree's node %d of level %d is not what its rows make", i, level)
	}
	v.nodes++
}

// checkNodes finds nodes that no rows make.
func (v *verifier) checkNodes(ctx context.Context) error {
	if v.node == nil {
		return nil
	}
	var count int64
	if err := v.tx.QueryRowContext(ctx, "SELECT count(*) FROM nodes").Scan(&count); err != nil {
		return err
	}
	if count != v.nodes {
		v.problem("the tree has %d nodes, and its rows make %d", count, v.nodes)
	}
	return nil
}

// namedHead is a head and where it was found.
type namedHead struct {
	Checkpoint
	where string
}

// readHeads reads the newest heads, before the rows are: they go on.
func (v *verifier) readHeads() {
	head, err := ReadHead(v.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if v.vault != nil && v.vault.Vault != nil {
			v.problem("%s is missing", HeadFile)
		}
	case err != nil:
		v.problem("%s: %v", HeadFile, err)
	default:
		if v.readHead(HeadFile, head) {
			v.report.Checkpoint = string(head)
		}
	}
	if v.vault != nil && v.vault.Vault != nil {
		v.readHead("the vault's head", v.vault.Vault)
	}
}

func (v *verifier) readHead(where string, head []byte) bool {
	var c Checkpoint
	var err error
	if v.vault != nil {
		c, err = OpenCheckpoint(head, v.vault.Key.VerifierKey())
	} else {
		c, err = readCheckpoint(head)
	}
	if err != nil {
		v.problem("%s: %v", where, err)
		return false
	}
	v.signed = append(v.signed, namedHead{c, where})
	v.report.Vault = max(v.report.Vault, c.Vault)
	return true
}

// compareHeads is called after each row.
func (v *verifier) compareHeads() {
	for _, h := range v.signed {
		if h.Size == v.tree.size && h.Root != v.tree.root() {
			v.problem("%s is over %d rows, and these are not those", h.where, h.Size)
		}
	}
}

func (v *verifier) checkHeads(context.Context) error {
	for _, h := range v.signed {
		if h.Size > v.tree.size {
			v.problem("%s is over %d rows, and there are %d: rows were cut off", h.where, h.Size, v.tree.size)
		}
	}
	return nil
}
