package ledger

import (
	"context"

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
