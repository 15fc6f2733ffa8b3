package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// The byte format of ledger.journal, version 1. Integers are big-endian.
//
//	file     header, segment 0, segment 1
//	header   4096 bytes: "yett ledger journal\n", uint32 version, uint32 size
//	         of a segment, the 16 bytes of identity that ledger.db has too,
//	         SHA-256 of all that; the rest is zero
//	segment  sector, groups, and after the newest group a sector of zeros
//	sector   512 bytes: "YJSG", uint32 0, uint64 generation, uint64 number of
//	         the first row, SHA-256("yett journal segment v1\n", identity,
//	         those 24 bytes); the rest is zero
//	group    "YJGR", uint32 length of the payload, uint64 generation, uint64
//	         offset of the group in the file, SHA-256("yett journal group
//	         v1\n", identity, those 24 bytes, payload), payload, and zeros up
//	         to a multiple of 512
//	payload  records: uint64 n, uint64 epoch, uint32 length and bytes of the
//	         sealed row, uint16 count of operations, and each as uint32 length
//	         and bytes of its canonical form after the row. A length with the
//	         highest bit set is of an operation that the row takes from the
//	         table operations to the table finished
//
// A group is what one sync made durable. No byte of a durable group is written
// again before its rows are durable in ledger.db: sectors are the unit that a
// disk writes whole, and groups share none.
const (
	journalMagic   = "yett ledger journal\n"
	journalVersion = 1
	segmentMagic   = "YJSG"
	groupMagic     = "YJGR"
	segmentLabel   = "yett journal segment v1\n"
	groupLabel     = "yett journal group v1\n"

	fileHeader  = 4096
	sector      = 512
	groupHeader = 24 + sha256.Size

	// segmentSize is some thousand intents; a segment that is full waits for
	// nothing as long as ledger.db follows within the time that the other one
	// takes to fill.
	segmentSize              = 2 << 20
	minSegment, maxSegment   = 8 << 10, 64 << 20
	identitySize             = 16
	fileHeaderUsed           = len(journalMagic) + 4 + 4 + identitySize
	segments                 = 2
	recordFixed, operationAt = 8 + 8 + 4, 2
	retiredBit               = 1 << 31
)

var zeroSector [sector]byte

// layout is what the header of a journal says.
type layout struct {
	identity []byte
	segment  int64 // size
}

func (l layout) start(segment int) int64 { return fileHeader + int64(segment)*l.segment }
func (l layout) size() int64             { return l.start(segments) }

func (l layout) header() []byte {
	b := append(make([]byte, 0, fileHeader), journalMagic...)
	b = binary.BigEndian.AppendUint32(b, journalVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(l.segment))
	b = append(b, l.identity...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)[:fileHeader]
}

var errNoJournal = errors.New("it does not begin as a journal does")

func parseHeader(b []byte) (layout, error) {
	if len(b) < fileHeader || !bytes.HasPrefix(b, []byte(journalMagic)) {
		return layout{}, errNoJournal
	}
	if v := binary.BigEndian.Uint32(b[len(journalMagic):]); v != journalVersion {
		return layout{}, fmt.Errorf("%w: journal version %d, this program knows %d", ErrFormat, v, journalVersion)
	}
	at := len(journalMagic) + 4
	l := layout{segment: int64(binary.BigEndian.Uint32(b[at:])), identity: bytes.Clone(b[at+4 : at+4+identitySize])}
	if l.segment < minSegment || l.segment > maxSegment || l.segment%sector != 0 || !bytes.Equal(l.header(), b[:fileHeader]) {
		return layout{}, errNoJournal
	}
	return l, nil
}

// segmentHead begins a segment.
type segmentHead struct {
	generation uint64
	first      int64 // number of its first row
}

func (l layout) segmentSector(h segmentHead) []byte {
	b := append(make([]byte, 0, sector), segmentMagic...)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, h.generation)
	b = binary.BigEndian.AppendUint64(b, uint64(h.first))
	sum := l.check(segmentLabel, b, nil)
	return append(b, sum[:]...)[:sector]
}

func (l layout) parseSegment(b []byte) (segmentHead, bool) {
	h := segmentHead{binary.BigEndian.Uint64(b[8:]), int64(binary.BigEndian.Uint64(b[16:]))}
	return h, h.generation > 0 && h.first > 0 && bytes.Equal(l.segmentSector(h), b[:sector])
}

// check is the sum of a sector or group; it is of no use elsewhere, in another
// journal, or at another place of this one.
func (l layout) check(label string, head, payload []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(append(append(append(make([]byte, 0, 128), label...), l.identity...), head...))
	h.Write(payload)
	h.Sum(sum[:0])
	return sum
}

// loggedRow is a row on its way from the journal to the database, with the
// operations that it makes or changes.
type loggedRow struct {
	sealedRow
	changes []transition
}

func (r *loggedRow) size() int {
	n := recordFixed + len(r.sealed) + operationAt
	for _, c := range r.changes {
		n += 4 + len(c.form)
	}
	return n
}

func (r *loggedRow) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(r.n))
	b = binary.BigEndian.AppendUint64(b, uint64(r.epoch))
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.sealed)))
	b = append(b, r.sealed...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.changes)))
	for _, c := range r.changes {
		size := uint32(len(c.form))
		if c.retired {
			size |= retiredBit
		}
		b = binary.BigEndian.AppendUint32(b, size)
		b = append(b, c.form...)
	}
	return b
}

// groupSize is the room that rows of that many bytes take.
func groupSize(payload int) int64 {
	return (int64(groupHeader+payload) + sector - 1) / sector * sector
}

// appendGroup adds a group that will stand at offset of the file.
func (l layout) appendGroup(b []byte, generation uint64, offset int64, rows []loggedRow) []byte {
	at := len(b)
	b = append(b, groupMagic...)
	b = append(b, make([]byte, groupHeader-len(groupMagic))...)
	for i := range rows {
		b = rows[i].appendTo(b)
	}
	head, payload := b[at:at+24], b[at+groupHeader:]
	binary.BigEndian.PutUint32(head[4:], uint32(len(payload)))
	binary.BigEndian.PutUint64(head[8:], generation)
	binary.BigEndian.PutUint64(head[16:], uint64(offset))
	sum := l.check(groupLabel, head, payload)
	copy(b[at+24:], sum[:])
	return append(b, zeroSector[:int(groupSize(len(payload)))-groupHeader-len(payload)]...)
}

// parseGroup reads the group at the beginning of b, which is at offset of the
// file, and returns how long it is. It allocates no more than b holds.
func (l layout) parseGroup(b []byte, generation uint64, offset int64) (rows []loggedRow, length int64, ok bool) {
	if len(b) < groupHeader || string(b[:4]) != groupMagic || binary.BigEndian.Uint64(b[8:]) != generation ||
		binary.BigEndian.Uint64(b[16:]) != uint64(offset) {
		return nil, 0, false
	}
	size := int64(binary.BigEndian.Uint32(b[4:]))
	if size > int64(len(b)-groupHeader) || size == 0 {
		return nil, 0, false
	}
	if length = groupSize(int(size)); length > int64(len(b)) {
		return nil, 0, false
	}
	payload := b[groupHeader : groupHeader+size]
	sum := l.check(groupLabel, b[:24], payload)
	if !bytes.Equal(sum[:], b[24:groupHeader]) || !isZero(b[groupHeader+size:length]) {
		return nil, 0, false
	}
	for len(payload) > 0 {
		var r loggedRow
		if r, payload, ok = parseRecord(payload); !ok {
			return nil, 0, false
		}
		rows = append(rows, r)
	}
	return rows, length, true
}

func parseRecord(b []byte) (r loggedRow, rest []byte, ok bool) {
	take := func(n int) (part []byte) {
		if ok = n >= 0 && n <= len(b); ok {
			part, b = b[:n], b[n:]
		}
		return part
	}
	fixed := take(recordFixed)
	if !ok {
		return r, nil, false
	}
	r.n, r.epoch = int64(binary.BigEndian.Uint64(fixed)), int64(binary.BigEndian.Uint64(fixed[8:]))
	if r.sealed = take(int(binary.BigEndian.Uint32(fixed[16:]))); !ok {
		return r, nil, false
	}
	count := take(operationAt)
	if !ok {
		return r, nil, false
	}
	for range binary.BigEndian.Uint16(count) {
		size := take(4)
		if !ok {
			return r, nil, false
		}
		n := binary.BigEndian.Uint32(size)
		form := take(int(n &^ retiredBit))
		if !ok {
			return r, nil, false
		}
		is, err := parseColumns(form)
		if err != nil {
			return r, nil, false
		}
		r.changes = append(r.changes, transition{is: &is, form: form, retired: n&retiredBit != 0})
	}
	return r, b, true
}

func isZero(b []byte) bool {
	for len(b) > sector {
		if !bytes.Equal(b[:sector], zeroSector[:]) {
			return false
		}
		b = b[sector:]
	}
	return bytes.Equal(b, zeroSector[:len(b)])
}
