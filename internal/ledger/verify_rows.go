package ledger

import (
	"context"
	"database/sql"
	"math"
	"runtime"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
)

// storedRow is a row with what Verify compares it with.
type storedRow struct {
	sealedRow
	leaf []byte
}

// openedRow is a row as the audit key opens it.
type openedRow struct {
	storedRow
	hash   tlog.Hash // of the row as it lies there
	in     keyedEpoch
	failed error // why it does not open
	row    Row
	vault  uint64    // generation of the vault that the row tells
	told   []columns // operations as the row leaves them
	untold []error   // what it tells and is no operation
}

// checkRows walks the rows in order. A block of them is opened while the next
// one is read; two are in memory.
func (v *verifier) checkRows(ctx context.Context) error {
	next, err := v.tx.PrepareContext(ctx, "SELECT n, epoch, sealed, leaf FROM rows WHERE n>? ORDER BY n LIMIT ?")
	if err != nil {
		return err
	}
	defer next.Close()
	r := &rowReader{v: v, next: next, after: math.MinInt64}
	expected, epoch := int64(1), int64(0)
	block, err := r.block(ctx)
	for err == nil && len(block) > 0 {
		var list []openedRow
		if list, err = v.withKeys(ctx, block); err != nil {
			return err
		}
		var opening sync.WaitGroup
		openBeside(&opening, list)
		block, err = r.block(ctx)
		opening.Wait()
		for i := range list {
			v.checkOrder(list[i].sealedRow, &expected, &epoch)
			v.checkRow(&list[i])
		}
		if err := v.checkTold(ctx, list); err != nil {
			return err
		}
		v.tell()
	}
	v.tell()
	return err
}

func (v *verifier) tell() {
	if v.progress != nil {
		v.progress(v.tree.size, max(v.head+int64(len(v.beyond)), v.tree.size))
	}
}

// rowReader reads the rows of the database, then those of the journal.
type rowReader struct {
	v     *verifier
	next  *sql.Stmt
	after int64
	ended bool
}

// block is empty at the end.
func (r *rowReader) block(ctx context.Context) ([]storedRow, error) {
	if r.ended {
		return nil, nil
	}
	list, err := scanStored(r.next.QueryContext(ctx, r.after, rowsAtOnce))
	if len(list) == 0 && err == nil {
		r.ended = true
		return r.v.storedBeyond(), nil
	}
	if len(list) > 0 {
		r.after = list[len(list)-1].n
	}
	return list, err
}

func scanStored(rows *sql.Rows, err error) ([]storedRow, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []storedRow
	for rows.Next() {
		var s storedRow
		if err := rows.Scan(&s.n, &s.epoch, &s.sealed, &s.leaf); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// withKeys finds the keys of a block, for which the database is asked.
func (v *verifier) withKeys(ctx context.Context, block []storedRow) ([]openedRow, error) {
	list := make([]openedRow, len(block))
	for i, s := range block {
		list[i].storedRow = s
		if v.keys.opener == nil || !v.epochs[s.epoch] {
			continue
		}
		list[i].in, list[i].failed = v.keys.at(ctx, s.epoch)
		if err := list[i].failed; err != nil && (sqliteCode(err) != 0 || ctx.Err() != nil) {
			return nil, err
		}
	}
	return list, nil
}

// openBeside opens rows on all processors.
func openBeside(opening *sync.WaitGroup, list []openedRow) {
	share := (len(list) + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	for len(list) > 0 {
		part := list[:min(share, len(list))]
		list = list[len(part):]
		opening.Go(func() {
			for i := range part {
				part[i].open()
			}
		})
	}
}

func (r *openedRow) open() {
	r.hash = leafHash(r.n, r.epoch, r.sealed)
	if r.in.rows == nil {
		return
	}
	plain, err := openRow(r.in.rows, r.n, r.epoch, r.sealed)
	var e effect
	if err == nil {
		r.row, e, err = decode(r.n, plain)
	}
	if r.failed = err; err != nil {
		return
	}
	r.vault = e.Vault
	for _, c := range e.Operations {
		told, err := parseColumns(c.Is)
		if err != nil {
			r.untold = append(r.untold, err)
			continue
		}
		r.told = append(r.told, told)
	}
}

func (v *verifier) checkOrder(s sealedRow, expected, epoch *int64) {
	if s.n != *expected {
		v.problem("row %d comes where row %d belongs", s.n, *expected)
	}
	*expected = s.n + 1
	if s.missing() {
		return
	}
	if s.epoch < *epoch {
		v.problem("row %d is of epoch %d, after rows of epoch %d", s.n, s.epoch, *epoch)
	}
	*epoch = s.epoch
}

func (v *verifier) checkRow(r *openedRow) {
	v.tree.add(r.hash, v.checkNode)
	v.compareHeads()
	if string(r.hash[:]) != string(r.leaf) {
		v.problem("row %d does not match its hash", r.n)
	}
	if r.missing() {
		v.problem("row %d is missing", r.n)
	} else if !v.epochs[r.epoch] {
		v.problem("row %d is of epoch %d, which has no key", r.n, r.epoch)
	}
	if r.in.rows == nil || r.failed != nil {
		v.unopened = true
	}
	if r.failed != nil {
		v.problem("row %d: %v", r.n, r.failed)
	}
	for _, err := range r.untold {
		v.problem("row %d: %v", r.n, err)
	}
	if r.in.rows == nil || r.failed != nil {
		return
	}
	if r.in.confirmed && r.vault != 0 {
		v.toldVault = r.vault
	}
	for _, look := range v.looks {
		if err := look(r.row); err != nil {
			v.problem("row %d: %v", r.n, err)
		}
	}
}
