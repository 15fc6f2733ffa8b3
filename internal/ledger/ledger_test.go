package ledger

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// installation is a ledger directory with the audit key that belongs to it.
type installation struct {
	dir     string
	private []byte
	public  []byte
}

func newInstallation(t testing.TB) installation {
	t.Helper()
	private, public, err := GenerateAuditKey()
	if err != nil {
		t.Fatal(err)
	}
	return installation{filepath.Join(t.TempDir(), "yett"), private, public}
}

// openLocked opens the ledger as a broker does before it is unlocked.
func (i installation) openLocked(t testing.TB) *Ledger {
	t.Helper()
	l, err := Open(i.dir, Options{AuditPublicKey: i.public})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (i installation) open(t testing.TB) *Ledger {
	t.Helper()
	l := i.openLocked(t)
	if err := l.CheckOperations(t.Context(), i.opener(t), 0); err != nil {
		t.Fatal(err)
	}
	return l
}

func (i installation) opener(t testing.TB) *Opener {
	t.Helper()
	o, err := NewOpener(i.private)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var operations atomic.Int64

// newOperation is an operation unlike every other.
func newOperation() Operation {
	digest := make([]byte, 32)
	rand.Read(digest)
	return Operation{
		ID:        fmt.Sprintf("op-%06d", operations.Add(1)),
		Session:   "session-1",
		Caller:    "3f1c0d6e-0000-4000-8000-000000000000:4711",
		Digest:    digest,
		CreatedAt: time.Now(),
	}
}

func row(kind string) Row {
	return Row{Kind: kind, Verified: json.RawMessage(`{"pid":42}`), Request: json.RawMessage(`{"path":"/v1/invoices"}`)}
}

// mustBegin is a durable intent.
func mustBegin(t testing.TB, l *Ledger, op Operation) int64 {
	t.Helper()
	n, err := l.Begin(t.Context(), op, row("intent"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustEnd(t testing.TB, l *Ledger, id string, s action.State) {
	t.Helper()
	if err := <-l.End(id, s, "", row("outcome")); err != nil {
		t.Fatal(err)
	}
}

func allRows(t testing.TB, l *Ledger, o *Opener) []Row {
	t.Helper()
	var list []Row
	if err := l.Rows(t.Context(), o, 1, func(r Row) error { list = append(list, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestRowsComeBackAsWritten(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	want := Row{N: 1, At: at, Kind: "session", SessionID: "s", Claimed: json.RawMessage(`{"a":"<&>"}`)}
	n, err := l.Append(t.Context(), want)
	if err != nil || n != 1 {
		t.Fatalf("row %d, %v", n, err)
	}
	op := newOperation()
	if got := mustBegin(t, l, op); got != 2 {
		t.Fatalf("intent row %d", got)
	}
	l.AppendSoon(row("soon"))
	mustEnd(t, l, op.ID, action.Completed)
	rows := allRows(t, l, in.opener(t))
	if len(rows) != 4 || fmt.Sprint(rows[0]) != fmt.Sprint(want) {
		t.Fatalf("got %v", rows)
	}
	if rows[1].OperationID != op.ID || rows[2].Kind != "soon" || rows[3].OperationID != op.ID {
		t.Fatalf("got %v", rows)
	}
	got, ok, err := l.Operation(op.ID)
	if err != nil || !ok || got.State != action.Completed || got.Intent != 2 || got.LastRow != 4 {
		t.Fatalf("%+v %v %v", got, ok, err)
	}
}

func mustVerify(t testing.TB, in installation, o *Opener) Report {
	t.Helper()
	r, err := Verify(t.Context(), in.dir, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerifyCleanLedger(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	for range 70 {
		op := newOperation()
		mustBegin(t, l, op)
		l.End(op.ID, action.Completed, "", row("outcome"))
	}
	if n := len(allRows(t, l, in.opener(t))); n != 140 {
		t.Fatalf("%d rows", n)
	}
	running := mustVerify(t, in, in.opener(t))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*Opener{nil, in.opener(t)} {
		closed := mustVerify(t, in, o)
		if !closed.OK || closed.Entries != 140 || closed.RootHash != running.RootHash || !running.OK {
			t.Fatalf("%+v %+v", closed, running)
		}
	}
}
