package ledger

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// journalContent is a journal as it lies in the file.
type journalContent struct {
	layout
	rows       []loggedRow // of whole groups, in order
	generation uint64      // of the newest segment, 0 if none was begun
	newest     int         // the newest segment
	through    int64       // the newest row that was written, as far as can be told
	torn       *tornEnd    // what follows the last whole group
	damage     string      // why this is not what a broker left, not even one that died
}

// tornEnd is what is neither a group nor an end. Where only the newest group
// is torn, a broker died in the middle of writing it and nobody was told of it.
type tornEnd struct {
	offset int64
	bytes  []byte
}

func (c *journalContent) damaged(format string, args ...any) {
	if c.damage == "" {
		c.damage = fmt.Sprintf(format, args...)
	}
}

// readJournal reads the whole file; it may be of any size and content.
func readJournal(f *os.File) (*journalContent, error) {
	whole, err := io.ReadAll(io.NewSectionReader(f, 0, fileHeader+segments*maxSegment+1))
	if err != nil {
		return nil, fmt.Errorf("reading ledger.journal: %w", err)
	}
	return parseJournal(whole)
}

// parseJournal fails where the header is not one. Everything else is told.
func parseJournal(whole []byte) (*journalContent, error) {
	l, err := parseHeader(whole)
	if err != nil {
		return nil, err
	}
	c := &journalContent{layout: l}
	if int64(len(whole)) != l.size() {
		c.damaged("ledger.journal has %d bytes and not %d", len(whole), l.size())
		whole = append(bytes.Clone(whole), make([]byte, max(0, l.size()-int64(len(whole))))...)
	}
	var heads [segments]segmentHead
	for i := range segments {
		part := whole[l.start(i) : l.start(i)+sector]
		ok := false
		if heads[i], ok = l.parseSegment(part); !ok && !isZero(part) {
			c.tornAt(whole, l.start(i), i)
		}
		if !ok {
			heads[i] = segmentHead{}
		}
	}
	if heads[1].generation > heads[0].generation {
		c.newest = 1
	}
	older, newer := heads[1-c.newest], heads[c.newest]
	c.generation, c.through = newer.generation, newer.first-1
	if older.generation != 0 && older.generation+1 != newer.generation {
		c.damaged("the segments of ledger.journal are of generations %d and %d", older.generation, newer.generation)
	}
	if older.generation != 0 {
		c.readSegment(whole, 1-c.newest, older)
		if c.torn != nil { // the newer one was begun after it: it was whole
			c.damaged("ledger.journal is damaged at byte %d, before its newest group", c.torn.offset)
		}
	}
	if newer.generation != 0 {
		c.readSegment(whole, c.newest, newer)
	}
	if len(c.rows) > 0 {
		c.through = c.rows[len(c.rows)-1].n
	}
	return c, nil
}

// readSegment takes the groups of a segment up to what is none.
func (c *journalContent) readSegment(whole []byte, i int, head segmentHead) {
	end := c.start(i) + c.segment
	at := c.start(i) + sector
	for at+sector <= end {
		rows, length, ok := c.parseGroup(whole[at:end], head.generation, at)
		if !ok {
			break
		}
		for _, r := range rows {
			if last := len(c.rows) - 1; last >= 0 && r.n <= c.rows[last].n {
				c.damaged("ledger.journal has row %d after row %d", r.n, c.rows[last].n)
			}
			c.rows = append(c.rows, r)
		}
		at += length
	}
	if at+sector > end || isZero(whole[at:at+sector]) {
		return
	}
	c.tornAt(whole, at, i)
	// A group is written when the one before it is durable, so nothing whole
	// can come after a torn one.
	for after := at + sector; after < end; after += sector {
		if _, _, ok := c.parseGroup(whole[after:end], head.generation, after); ok {
			c.damaged("ledger.journal is damaged at byte %d: a whole group follows", at)
			return
		}
	}
}

func (c *journalContent) tornAt(whole []byte, at int64, segment int) {
	if c.torn == nil {
		c.torn = &tornEnd{at, bytes.TrimRight(whole[at:c.start(segment)+c.segment], "\x00")}
	}
}
