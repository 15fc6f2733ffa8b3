package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	rowLabel = "yett ledger row v1\n"
	// maxRow bounds the plaintext of a row. A request is at most 1 MiB on
	// the wire; the rest of a row is evidence.
	maxRow = 8 << 20
)

// plainRow is a Row without its number, which the seal binds.
type plainRow struct {
	At          time.Time       `json:"at"`
	Kind        string          `json:"kind"`
	SessionID   string          `json:"session_id"`
	OperationID string          `json:"operation_id"`
	Verified    json.RawMessage `json:"verified"`
	Claimed     json.RawMessage `json:"claimed"`
	Granted     json.RawMessage `json:"granted"`
	Request     json.RawMessage `json:"request"`
	Outcome     json.RawMessage `json:"outcome"`
}

// effect is what the writer adds to the plaintext of a row: the operations
// that the row makes or changes, the hash of all operations after it, and the
// generation that the vault's file had, 0 where none was told.
type effect struct {
	Operations []change `json:"operations,omitempty"`
	Table      []byte   `json:"operations_hash"`
	Vault      uint64   `json:"vault_generation,omitempty"`
}

// change is one operation in its canonical form after the row, and before it
// if the row is of recovery.
type change struct {
	Was []byte `json:"was,omitempty"`
	Is  []byte `json:"is"`
}

// joinEffect puts the effect of a row into a copy of the object that encode made,
// with room for the seal.
func joinEffect(plain []byte, changes []transition, table []byte, vault uint64) []byte {
	open := plain[:len(plain)-1]
	b := make([]byte, 0, len(open)+128+len(changes)*600+sealOverhead)
	b = append(b, open...)
	told := 0
	for _, c := range changes {
		if c.retired { // an earlier row tells of it
			continue
		}
		if told++; told == 1 {
			b = append(b, `,"operations":[{`...)
		} else {
			b = append(b, `},{`...)
		}
		if c.tellWas {
			b = append(base64.StdEncoding.AppendEncode(append(b, `"was":"`...), c.was.encode()), `",`...)
		}
		b = append(base64.StdEncoding.AppendEncode(append(b, `"is":"`...), c.form), '"')
	}
	if told > 0 {
		b = append(b, `}]`...)
	}
	b = append(b, `,"operations_hash":"`...)
	b = append(base64.StdEncoding.AppendEncode(b, table), '"')
	if vault != 0 {
		b = strconv.AppendUint(append(b, `,"vault_generation":`...), vault, 10)
	}
	return append(b, '}')
}

// encode makes the plaintext of r. It runs in the caller's goroutine, so that
// the writer only seals.
func (l *Ledger) encode(r Row) ([]byte, error) {
	if r.At.IsZero() {
		r.At = l.now()
	}
	r.At = r.At.UTC().Round(0)
	if y := r.At.Year(); y < 0 || y > 9999 {
		return nil, fmt.Errorf("encoding row %q: no year %d", r.Kind, y)
	}
	size := 256 + len(r.Kind) + len(r.SessionID) + len(r.OperationID) +
		len(r.Verified) + len(r.Claimed) + len(r.Granted) + len(r.Request) + len(r.Outcome)
	b := append(make([]byte, 0, size), `{"at":"`...)
	b = append(r.At.AppendFormat(b, time.RFC3339Nano), '"')
	for _, m := range [...]struct{ name, value string }{
		{`,"kind":`, r.Kind}, {`,"session_id":`, r.SessionID}, {`,"operation_id":`, r.OperationID},
	} {
		b = appendString(append(b, m.name...), m.value)
	}
	for _, m := range [...]struct {
		name string
		part json.RawMessage
	}{
		{`,"verified":`, r.Verified}, {`,"claimed":`, r.Claimed}, {`,"granted":`, r.Granted},
		{`,"request":`, r.Request}, {`,"outcome":`, r.Outcome},
	} {
		b = append(b, m.name...)
		switch {
		case m.part == nil:
			b = append(b, "null"...)
		case json.Valid(m.part):
			b = append(b, m.part...)
		default:
			return nil, fmt.Errorf("encoding row %q: a part is no JSON", r.Kind)
		}
	}
	b = append(b, '}')
	if len(b) > maxRow {
		return nil, fmt.Errorf("encoding row %q: %d bytes are more than a row may have (%d)", r.Kind, len(b), maxRow)
	}
	return b, nil
}

// appendString adds s as JSON. Ids and kinds need no escapes.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// encodeAnyway is encode for rows that must be written because what they tell
// has happened: if the parts cannot be encoded the row says so instead.
func (l *Ledger) encodeAnyway(r Row) []byte {
	plain, err := l.encode(r)
	if err == nil {
		return plain
	}
	note, _ := json.Marshal(map[string]string{"not_recorded": "the parts of this row could not be encoded"})
	plain, err = l.encode(Row{At: r.At, Kind: capped(r.Kind), SessionID: capped(r.SessionID),
		OperationID: capped(r.OperationID), Outcome: note})
	if err != nil { // a year beyond 9999: the time is all that is left to give up
		plain, _ = l.encode(Row{At: time.Unix(0, 0), Kind: capped(r.Kind), SessionID: capped(r.SessionID),
			OperationID: capped(r.OperationID), Outcome: note})
	}
	return plain
}

func capped(s string) string {
	const limit = 256
	if len(s) > limit {
		return s[:limit]
	}
	return s
}

// decode is the inverse of encode and joinEffect.
func decode(n int64, plain []byte) (Row, effect, error) {
	var p struct {
		plainRow
		effect
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Row{}, effect{}, fmt.Errorf("decoding row %d: %w", n, err)
	}
	r := Row{n, p.At, p.Kind, p.SessionID, p.OperationID,
		p.Verified, p.Claimed, p.Granted, p.Request, p.Outcome}
	for _, part := range []*json.RawMessage{&r.Verified, &r.Claimed, &r.Granted, &r.Request, &r.Outcome} {
		if string(*part) == "null" {
			*part = nil
		}
	}
	return r, p.effect, nil
}

// rowAAD is what a row's seal binds besides its plaintext.
func rowAAD(n, epoch int64) []byte {
	b := make([]byte, 0, len(rowLabel)+16)
	b = append(b, rowLabel...)
	b = binary.BigEndian.AppendUint64(b, uint64(n))
	return binary.BigEndian.AppendUint64(b, uint64(epoch))
}

// leafHash is the RFC 6962 leaf hash of a row as it lies in the file.
func leafHash(n, epoch int64, sealed []byte) tlog.Hash {
	h := sha256.New()
	h.Write([]byte{0}) // of a leaf
	h.Write(rowAAD(n, epoch))
	h.Write(sealed) // which is long: it is not copied behind the rest
	var leaf tlog.Hash
	h.Sum(leaf[:0])
	return leaf
}
