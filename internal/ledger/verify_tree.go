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

// readHead reads the newest head, before the rows are: they go on.
func (v *verifier) readHead() {
	head, err := ReadHead(v.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return // none was signed yet, or it was taken away: the vault knows
	}
	if err == nil {
		var c Checkpoint
		if c, err = readCheckpoint(head); err == nil {
			v.signed, v.report.Checkpoint = &c, string(head)
		}
	}
	if err != nil {
		v.problem("%s: %v", HeadFile, err)
	}
}

// compareHead is called after each row.
func (v *verifier) compareHead() {
	if v.signed != nil && v.signed.Size == v.tree.size && v.signed.Root != v.tree.root() {
		v.problem("%s is over %d rows, and these are not those", HeadFile, v.signed.Size)
	}
}

func (v *verifier) checkHead(context.Context) error {
	if v.signed != nil && v.signed.Size > v.tree.size {
		v.problem("%s is over %d rows, and there are %d: rows were cut off", HeadFile, v.signed.Size, v.tree.size)
	}
	return nil
}
