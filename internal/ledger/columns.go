package ledger

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/yett-broker/yett/internal/action"
)

const operationColumns = "id, state, code, session, caller, digest, idem, unsafe, intent, last_row, resolved, budget_key, began, at"

// columns are one row of the table operations. idem and budgetKey are NULL
// when empty.
type columns struct {
	id, state, code, session, caller  string
	digest, idem                      []byte
	unsafe, intent, lastRow, resolved int64
	budgetKey                         []byte
	began, at                         int64
}

// isNull is the length of a NULL in the canonical form.
const isNull = math.MaxUint64

// encode is the canonical form of an operation: the columns in the order of
// the table, an INTEGER as int64, TEXT and BLOB as uint64 length and bytes,
// NULL as the length 2^64-1. Seals, marks and the table's hash are over it.
func (c *columns) encode() []byte { return c.appendTo(make([]byte, 0, c.size())) }

func (c *columns) appendTo(b []byte) []byte {
	for _, s := range [...]string{c.id, c.state, c.code, c.session, c.caller} {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	b = append(binary.BigEndian.AppendUint64(b, uint64(len(c.digest))), c.digest...)
	b = appendOptional(b, c.idem)
	for _, n := range [...]int64{c.unsafe, c.intent, c.lastRow, c.resolved} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = appendOptional(b, c.budgetKey)
	b = binary.BigEndian.AppendUint64(b, uint64(c.began))
	return binary.BigEndian.AppendUint64(b, uint64(c.at))
}

// size is the length of the canonical form.
func (c *columns) size() int {
	return 14*8 + len(c.id) + len(c.state) + len(c.code) + len(c.session) + len(c.caller) +
		len(c.digest) + len(c.idem) + len(c.budgetKey)
}

func appendOptional(b, blob []byte) []byte {
	if len(blob) == 0 {
		return binary.BigEndian.AppendUint64(b, isNull)
	}
	return append(binary.BigEndian.AppendUint64(b, uint64(len(blob))), blob...)
}

var errColumns = errors.New("not the columns of an operation")

// parseColumns is the inverse of encode; it takes nothing that encode does
// not make.
func parseColumns(b []byte) (columns, error) {
	var c columns
	whole := b
	number := func(n *int64) {
		if len(b) < 8 {
			b = nil
			return
		}
		*n, b = int64(binary.BigEndian.Uint64(b)), b[8:]
	}
	blob := func() []byte {
		var n int64
		number(&n)
		if n < 0 || n > int64(len(b)) {
			return nil // NULL, or what the comparison below refuses
		}
		taken := b[:n]
		b = b[n:]
		return taken
	}
	for _, s := range []*string{&c.id, &c.state, &c.code, &c.session, &c.caller} {
		*s = string(blob())
	}
	c.digest, c.idem = blob(), blob()
	for _, n := range []*int64{&c.unsafe, &c.intent, &c.lastRow, &c.resolved} {
		number(n)
	}
	c.budgetKey = blob()
	number(&c.began)
	number(&c.at)
	if !bytes.Equal(c.encode(), whole) {
		return columns{}, errColumns
	}
	return c, nil
}

// args are the columns as the statement takes them.
func (c *columns) args() []any {
	return []any{c.id, c.state, c.code, c.session, c.caller, append([]byte{}, c.digest...), optional(c.idem),
		c.unsafe, c.intent, c.lastRow, c.resolved, optional(c.budgetKey), c.began, c.at}
}

// optional is NULL for an absent digest.
func optional(digest []byte) any {
	if len(digest) == 0 {
		return nil
	}
	return digest
}

func scanOperations(rows *sql.Rows, err error) ([]columns, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []columns
	for rows.Next() {
		var c columns
		if err := rows.Scan(c.destinations()...); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

func (c *columns) destinations() []any {
	return []any{&c.id, &c.state, &c.code, &c.session, &c.caller, &c.digest, &c.idem,
		&c.unsafe, &c.intent, &c.lastRow, &c.resolved, &c.budgetKey, &c.began, &c.at}
}

// differences tells, column by column, what c has and what want has.
func (c *columns) differences(want *columns) []string {
	var told []string
	has, wants := c.shown(), want.shown()
	for i, name := range []string{"id", "state", "code", "session", "caller", "digest", "idem",
		"unsafe", "intent", "last_row", "resolved", "budget_key", "began", "at"} {
		if has[i] != wants[i] {
			told = append(told, fmt.Sprintf("%s is %s, not %s", name, has[i], wants[i]))
		}
	}
	return told
}

func (c *columns) shown() []string {
	var s []string
	for _, text := range []string{c.id, c.state, c.code, c.session, c.caller} {
		s = append(s, strconv.Quote(text))
	}
	s = append(s, shownBlob(c.digest), shownBlob(c.idem))
	for _, n := range []int64{c.unsafe, c.intent, c.lastRow, c.resolved} {
		s = append(s, strconv.FormatInt(n, 10))
	}
	return append(s, shownBlob(c.budgetKey), strconv.FormatInt(c.began, 10), strconv.FormatInt(c.at, 10))
}

func shownBlob(b []byte) string {
	if len(b) == 0 {
		return "empty"
	}
	return fmt.Sprintf("%x", b)
}

// isOpen: something still has to happen to the operation, or may.
func (c *columns) isOpen() bool {
	switch action.State(c.state) {
	case action.Queued, action.Executing:
		return true
	case action.Indeterminate:
		return c.resolved == 0
	}
	return false
}

// holdsUp: an equal operation has to wait for this one.
func (c *columns) holdsUp() bool {
	return c.isOpen() && c.unsafe == 1 && c.state != string(action.Queued)
}

func (c *columns) operation() Operation {
	return Operation{ID: c.id, State: action.State(c.state), Code: c.code, Session: c.session, Caller: c.caller,
		Digest: c.digest, Idempotency: c.idem, Unsafe: c.unsafe != 0, Intent: c.intent, LastRow: c.lastRow,
		Resolved: c.resolved, BudgetKey: c.budgetKey, CreatedAt: fromNanos(c.at)}
}
