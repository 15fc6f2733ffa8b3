package ledger

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"golang.org/x/mod/sumdb/tlog"
)

const (
	rowLabel = "yett ledger row v1\n"
	// maxRow bounds the plaintext of a row. A request is at most 1 MiB on
	// the wire; the rest of a row is evidence.
	maxRow = 8 << 20
)

// stateResolved stands in the row by which a person resolved an operation; the
// operation stays indeterminate.
const stateResolved action.State = "resolved"

// plainRow is what is sealed: a Row without its number, which the seal binds.
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

	// State is the state that the row put its operation in, or
	// stateResolved.
	State action.State `json:"operation_state,omitempty"`
}

// encode makes the plaintext of r. It runs in the caller's goroutine, so that
// the writer only seals.
func (l *Ledger) encode(r Row, s action.State) ([]byte, error) {
	if r.At.IsZero() {
		r.At = l.now()
	}
	r.At = r.At.UTC().Round(0)
	p := plainRow{r.At, r.Kind, r.SessionID, r.OperationID,
		r.Verified, r.Claimed, r.Granted, r.Request, r.Outcome, s}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encoding row %q: %w", r.Kind, err)
	}
	if buf.Len() > maxRow {
		return nil, fmt.Errorf("encoding row %q: %d bytes are more than a row may have (%d)", r.Kind, buf.Len(), maxRow)
	}
	return buf.Bytes(), nil
}

// encodeAnyway is encode for rows that must be written because what they tell
// has happened: if the parts cannot be encoded the row says so instead.
func (l *Ledger) encodeAnyway(r Row, s action.State) []byte {
	plain, err := l.encode(r, s)
	if err == nil {
		return plain
	}
	note, _ := json.Marshal(map[string]string{"not_recorded": "the parts of this row could not be encoded"})
	plain, err = l.encode(Row{At: r.At, Kind: capped(r.Kind), SessionID: capped(r.SessionID),
		OperationID: capped(r.OperationID), Outcome: note}, s)
	if err != nil { // a year beyond 9999: the time is all that is left to give up
		plain, _ = l.encode(Row{At: time.Unix(0, 0), Kind: capped(r.Kind), SessionID: capped(r.SessionID),
			OperationID: capped(r.OperationID), Outcome: note}, s)
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

// decode is the inverse of encode.
func decode(n int64, plain []byte) (Row, action.State, error) {
	var p plainRow
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Row{}, "", fmt.Errorf("decoding row %d: %w", n, err)
	}
	r := Row{n, p.At, p.Kind, p.SessionID, p.OperationID,
		p.Verified, p.Claimed, p.Granted, p.Request, p.Outcome}
	for _, part := range []*json.RawMessage{&r.Verified, &r.Claimed, &r.Granted, &r.Request, &r.Outcome} {
		if string(*part) == "null" {
			*part = nil
		}
	}
	return r, p.State, nil
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
	return tlog.RecordHash(append(rowAAD(n, epoch), sealed...))
}
