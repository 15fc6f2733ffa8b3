package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// nodeLevel is the lowest level of the tree that the table nodes keeps: what
// is below is computed from at most 64 leaves, so that a row seldom costs more
// than itself and a proof stays short work in a ledger of any size.
const nodeLevel = 6

// tree is an RFC 6962 tree that grows by its leaves in order. It holds one
// hash for each full subtree, so at most 63.
type tree struct {
	size int64
	full []tlog.Hash // left to right, each bigger than the next
}

// add calls node, if there is one, for each subtree that the leaf fills, from
// nodeLevel on: with its level and its place in the level.
func (t *tree) add(leaf tlog.Hash, node func(level int, i int64, hash tlog.Hash)) {
	t.full = append(t.full, leaf)
	level := 0
	for n := t.size; n&1 == 1; n >>= 1 { // a subtree of the same size is there
		last := len(t.full) - 1
		t.full[last-1] = tlog.NodeHash(t.full[last-1], t.full[last])
		t.full = t.full[:last]
		if level++; level >= nodeLevel && node != nil {
			node(level, t.size>>level, t.full[last-1])
		}
	}
	t.size++
}

func (t *tree) root() tlog.Hash {
	if t.size == 0 {
		h, _ := tlog.TreeHash(0, nil) // a constant
		return h
	}
	h := t.full[len(t.full)-1]
	for i := len(t.full) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.full[i], h)
	}
	return h
}

func (t *tree) clone() tree { return tree{t.size, slices.Clone(t.full)} }

// nodeReader reads hashes of the tree from the database.
type nodeReader struct {
	ctx context.Context
	q   querier
}

var errNodes = errors.New("the nodes of the tree are not as they have to be")

// ReadHashes makes nodeReader a tlog.HashReader.
func (r nodeReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		var err error
		if list[i], err = r.hash(level, n); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (r nodeReader) hash(level int, i int64) (h tlog.Hash, err error) {
	if level < nodeLevel {
		t, err := r.leaves(i<<level, 1<<level)
		return t.root(), err
	}
	var stored []byte
	err = r.q.QueryRowContext(r.ctx, "SELECT hash FROM nodes WHERE level=? AND i=?", level, i).Scan(&stored)
	if errors.Is(err, sql.ErrNoRows) || err == nil && len(stored) != len(h) {
		return h, fmt.Errorf("%w: level %d, %d", errNodes, level, i)
	}
	copy(h[:], stored)
	return h, err
}

// leaves is the tree of count leaves from number first on, which counts from 0.
func (r nodeReader) leaves(first, count int64) (t tree, err error) {
	rows, err := r.q.QueryContext(r.ctx, "SELECT leaf FROM rows WHERE n>? AND n<=? ORDER BY n", first, first+count)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	for rows.Next() {
		var leaf sql.RawBytes
		if err := rows.Scan(&leaf); err != nil {
			return t, err
		}
		var h tlog.Hash
		if len(leaf) != len(h) {
			return t, errNodes
		}
		copy(h[:], leaf)
		t.add(h, nil)
	}
	if err := rows.Err(); err != nil {
		return t, err
	}
	if t.size != count {
		return t, fmt.Errorf("%w: %d leaves of %d from row %d on", errNodes, t.size, count, first+1)
	}
	return t, nil
}

// readTree makes the tree of the first size rows from the nodes of nodeLevel
// and the leaves beyond them: nodes above do not have a say.
func readTree(ctx context.Context, q querier, size int64) (t tree, err error) {
	rows, err := q.QueryContext(ctx, "SELECT i, hash FROM nodes WHERE level=? AND i<? ORDER BY i", nodeLevel, size>>nodeLevel)
	if err != nil {
		return tree{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var i int64
		var stored sql.RawBytes
		if err := rows.Scan(&i, &stored); err != nil {
			return tree{}, err
		}
		var h tlog.Hash
		if i != t.size || len(stored) != len(h) {
			return tree{}, fmt.Errorf("%w: level %d, %d", errNodes, nodeLevel, t.size)
		}
		copy(h[:], stored)
		t.add(h, nil) // a tree whose leaves are these nodes
	}
	if err := rows.Err(); err != nil {
		return tree{}, err
	}
	if t.size != size>>nodeLevel {
		return tree{}, fmt.Errorf("%w: %d of level %d", errNodes, t.size, nodeLevel)
	}
	t.size <<= nodeLevel
	rest, err := nodeReader{ctx, q}.leaves(t.size, size-t.size)
	if err != nil {
		return tree{}, err
	}
	return tree{size, append(t.full, rest.full...)}, nil
}

// writeNodes computes all nodes anew from the leaves.
func writeNodes(ctx context.Context, e editor) error {
	if _, err := e.ExecContext(ctx, "DELETE FROM nodes"); err != nil {
		return err
	}
	insert, err := e.PrepareContext(ctx, "INSERT INTO nodes(level, i, hash) VALUES(?,?,?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	rows, err := e.QueryContext(ctx, "SELECT leaf FROM rows ORDER BY n")
	if err != nil {
		return err
	}
	defer rows.Close()
	var t tree
	for rows.Next() {
		var leaf sql.RawBytes
		if err := rows.Scan(&leaf); err != nil {
			return err
		}
		var h tlog.Hash
		copy(h[:], leaf)
		var failed error
		t.add(h, func(level int, i int64, hash tlog.Hash) {
			_, err := insert.ExecContext(ctx, level, i, hash[:])
			failed = errors.Join(failed, err)
		})
		if failed != nil {
			return failed
		}
	}
	return rows.Err()
}
