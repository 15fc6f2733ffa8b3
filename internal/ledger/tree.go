package ledger

import "golang.org/x/mod/sumdb/tlog"

// tree computes the root of an RFC 6962 tree from its leaves in order. It
// holds one hash for each full subtree, so at most 63.
type tree struct {
	size int64
	full []tlog.Hash // left to right, each bigger than the next
}

func (t *tree) add(leaf tlog.Hash) {
	t.full = append(t.full, leaf)
	for n := t.size; n&1 == 1; n >>= 1 { // a subtree of the same size is there
		last := len(t.full) - 1
		t.full[last-1] = tlog.NodeHash(t.full[last-1], t.full[last])
		t.full = t.full[:last]
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
