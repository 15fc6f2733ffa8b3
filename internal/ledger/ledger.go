// Package ledger keeps the operations and the tamper-evident log of one Yett
// installation in DIR/ledger.db, and the newest of it in DIR/ledger.journal.
// It is the durable memory of the broker: an intent that is not on disk did
// not happen, and an intent without an outcome becomes 'indeterminate' at the
// next start, never 'failed' and never 'running for ever'.
//
// # Order
//
// A row gets its number, its seal and its effect on what the run knows under
// one lock, and goes into the group that is being gathered. Whoever waits for
// a group writes it, unless somebody writes already: one write and one sync of
// the journal, which is preallocated. Then its callers are told. A drain
// follows within some 20 ms and brings many rows into the database in one
// transaction; a place of the journal is used again only when that is durable.
// Where a crash may fall, and what the next start sees:
//
//   - before the sync: the group, or a part of it, or nothing. A part is no
//     group; it is kept aside and told. A whole one counts: an intent that
//     nobody was told of reads as indeterminate, the safe side.
//   - after the sync, before the drain's commit: rows beyond the end of the
//     database. The next start brings them there before it looks at anything.
//   - after the commit: rows in both, which have to be the same.
//   - at the change of segments: the new head with or without its group, or
//     the old head. The rows of the other segment may not be in the database
//     yet, those of this one are.
//
// Rows of a group that fits in no segment, of a start, and of an end go into
// the database alone, in one transaction, after all that the journal has.
//
// # Trust
//
// Whom it trusts: the kernel's file locks, SQLite, and its own process. It does
// not trust what it reads back, since any process of the account can write the
// files:
//
//   - While a broker runs, what it knows of the operations lies in its memory,
//     and decisions are made from that: the operation, the equal ones that are
//     unresolved, the holder of an idempotency key, the intents of a budget.
//     A commit to the database that is not its own is ErrTampered, and nothing
//     begins any more until the ledger is opened again; answers of the file
//     are compared with what is known. Outcomes are recorded all the same.
//   - At the start the journal has to be the one that the database used: of
//     its identity, not of an earlier generation, not shorter than what came
//     through it, whole but for its newest group. What differs is written into
//     the database as a problem, and nothing begins at this or later starts.
//   - CheckOperations, at unlocking, compares what the run found at its start
//     with what the run before left, all columns of all operations that can
//     decide something. Without it nothing begins. What it finds stays so at
//     later starts.
//   - An operation that decides nothing any more is taken from the table
//     finished only if the row that ended it, which opens with the audit key,
//     tells the same.
//   - Verify recomputes every hash and, with the audit key, opens every row
//     and compares every column of every operation.
//
// None of them notices alone an older copy of all files, or a cut of the
// newest rows together with operations put back as they were before them; for
// that the head of the tree has to be kept elsewhere. Where a broker was
// killed, whole groups that were cut off the journal and are not in the
// database yet are such a cut. Without the audit key a changed column that
// leaves a possible state, or a missing operation, is not noticed. Pages that
// are changed beneath SQLite beside a running broker are noticed at the next
// start. Within the broker's process nothing else may open ledger.db: closing
// a second descriptor of the file could drop SQLite's locks.
//
// # Format, version 3
//
// ledger.db is SQLite, application_id 0x59455454 ("YETT"), user_version 3.
// Version 1 had no journal, version 2 none of the tables finished and nodes;
// Open brings both to version 3.
//
//	journal     one row: identity, 16 random bytes that stand in ledger.journal
//	            too; generation, which the journal has reached at least; resume,
//	            from which row on every row was in the journal before it was
//	            here; in_use, 1 from a start to its orderly end; problem, what a
//	            start found wrong with the journal, for good
//	epochs      one row key per start of the broker and audit recipient:
//	            id counts from 1; recipient = first 16 bytes of the SHA-256 of
//	            the recipient's X25519 public key; (enc, sealed) = HPKE base
//	            mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM,
//	            info "yett ledger epoch v1", aad = uint64(id);
//	            confirmed = NULL until CheckOperations succeeds, then
//	            HMAC-SHA-256 of id, enc and sealed (each uint64 length and
//	            bytes) under HKDF-SHA256(audit private key, no salt, info
//	            "yett ledger confirmation v1", 32 bytes)
//	rows        n counts from 1 without gaps, in the order of the effects;
//	            sealed = 12-byte random nonce, AES-256-GCM ciphertext and tag
//	            under the epoch's key, aad = label, uint64(n), uint64(epoch);
//	            leaf = RFC 6962 leaf hash, SHA-256(0x00, label, uint64(n),
//	            uint64(epoch), sealed)
//	operations  the present state of every operation that can still decide
//	            something, and of some 1000 more, so that recovery and lookups
//	            need no key
//	finished    operations that decide nothing any more: they have ended, no
//	            budget counts them, and their idempotency key, if they have
//	            one, is of an earlier boot. A row of kind operations_retired
//	            moves them here; the row that ended one goes on telling of it
//	nodes       hashes of the full subtrees of the tree, from level 6 on, which
//	            are of 64 rows; i counts the subtrees of a level from 0
//
// Label is "yett ledger row v1\n", integers are big-endian. Row n is leaf n-1
// of the tree. The plaintext of a row is a JSON object with the members of Row
// but n, and two more:
//
//	operations       the operations that the row makes or changes, each with
//	                 its columns in canonical form, base64: "is" after the
//	                 row, and where recovery wrote it "was" before; absent if
//	                 there are none
//	operations_hash  the hash of the table operations after the row, base64
//
// The canonical form of an operation is its columns in the order of the table:
// an INTEGER as int64, TEXT and BLOB as uint64 length and bytes, NULL as the
// length 2^64-1. The operations hash is the SHA-256 of 1024 uint16, each the
// sum mod 2^16, over all operations, of that uint16 of the AES-256-CTR key
// stream (counter from 0) under SHA-256("yett ledger operation v1\n",
// canonical form): LtHash16. It needs no key, so a locked broker can carry it
// on.
//
// In an epoch that is not confirmed only recovery changes operations. An
// operations hash is taken for true if it stands in a row of a confirmed
// epoch, or leads to one when those changes are taken back: whoever lacks the
// row keys can seal rows of an epoch of his own, but no other change counts.
//
// Plain columns hold states, ids, reason codes, keyed digests, the caller as
// 'bootid:pidfsinode', and times; nothing tells capability, path or action.
//
// The format of ledger.journal stands in journal_format.go.
package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// ErrInUse is returned by Open while another broker has the ledger open.
var ErrInUse = errors.New("the ledger is in use by another broker")

// ErrNoLedger is returned where there is no ledger to read.
var ErrNoLedger = errors.New("there is no ledger")

// ErrFormat is returned for a file that is not a ledger of a known version.
var ErrFormat = errors.New("unknown ledger format")

// ErrUnavailable is wrapped by every error that means that something could
// not be made durable. After it nothing of the refused call has happened.
var ErrUnavailable = errors.New("the ledger cannot be written")

// ErrTampered is wrapped by errors about operations that somebody else changed
// in the file. The ledger then takes no new actions until it is opened again.
var ErrTampered = errors.New("the ledger was changed by something else than the broker")

// ErrUnchecked, which wraps ErrUnavailable, refuses what relies on operations of earlier runs.
var ErrUnchecked = fmt.Errorf("%w: the operations of earlier runs have not been checked", ErrUnavailable)

// ErrBudget is returned by Begin when the budget's window is full.
var ErrBudget = errors.New("the budget is spent")

// ErrNoOperation is returned for an operation id that the ledger does not have.
var ErrNoOperation = errors.New("no such operation")

// ErrTransition is wrapped by errors about a change of state that the state
// machine does not have. Nothing was changed.
var ErrTransition = errors.New("impossible change of state")

// ErrUnresolved is returned by Begin when an equal unsafe operation is still
// executing or its outcome is unknown. ID is that operation.
type ErrUnresolved struct{ ID string }

func (e ErrUnresolved) Error() string {
	return "an equal operation is unresolved: " + e.ID
}

// ErrKeyUsed is returned by Queue and Begin when the idempotency key already
// belongs to operation ID.
type ErrKeyUsed struct{ ID string }

func (e ErrKeyUsed) Error() string {
	return "the idempotency key belongs to operation " + e.ID
}

// Row is one entry of the log. N is given by the ledger; At is set by it when
// zero. An absent part is null.
type Row struct {
	N           int64           `json:"n"`
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

// Operation is the present state of one operation. Ids that begin with a
// time keep the ledger's pages together; any unique string will do.
type Operation struct {
	ID          string
	State       action.State
	Code        string // reason code when denied or indeterminate, plain
	Session     string
	Caller      string
	Digest      []byte // keyed digest of capability and action
	Idempotency []byte // keyed digest of caller and key; nil if there is none
	Unsafe      bool   // repeating it may repeat an effect, and nobody allowed that
	Intent      int64  // row of the intent, 0 before
	LastRow     int64  // row of the last change of state
	Resolved    int64  // row that settled an indeterminate operation, 0 if none
	BudgetKey   []byte
	CreatedAt   time.Time

	// Repeat lets Begin go ahead although an equal operation is
	// indeterminate: a person approved the repetition. RepeatOf, if set,
	// is the one operation that the approval was about. Neither is stored.
	Repeat   bool
	RepeatOf string
}

// Budget allows Max intents with one BudgetKey within Window.
type Budget struct {
	Max    int
	Window time.Duration
}

// Options are what Open needs. AuditPublicKey is the X25519 public key that
// row keys are sealed to; Now may be nil. Boot is the part before the colon of
// every Operation.Caller of this boot of the system: idempotency keys of
// earlier ones decide nothing. Where it is empty all do.
type Options struct {
	AuditPublicKey []byte
	Now            func() time.Time
	Boot           string
}

// Ledger is an open ledger. Its methods may be called from any goroutine.
type Ledger struct {
	place   *place // holds the lock
	now     func() time.Time
	boot    string
	writeDB *sql.DB
	readDB  *sql.DB
	lookup  lookups
	w       *writer

	recoveredIndeterminate int
	recoveredDenied        int

	closing  sync.Once
	closeErr error
	entries  atomic.Int64 // durable rows

	foundRows  int64     // rows of earlier runs
	foundTable tableHash // of the operations that they left
	checking   sync.Mutex
	checked    atomic.Bool // CheckOperations found them as they were left
	scrubbing  sync.Once
	heads      heads
}

// Open opens the ledger in dir, or makes it, and settles what the last
// instance left: executing becomes indeterminate, queued becomes denied. It
// needs no secret, so it works while the vault is locked.
func Open(dir string, o Options) (*Ledger, error) {
	l, err := openLedger(dir, o)
	if err != nil {
		return nil, fmt.Errorf("opening ledger: %w", err)
	}
	return l, nil
}

func openLedger(dir string, o Options) (_ *Ledger, err error) {
	recipient, err := newRecipient(o.AuditPublicKey)
	if err != nil {
		return nil, err
	}
	l := &Ledger{now: o.Now, boot: o.Boot}
	if l.now == nil {
		l.now = time.Now
	}
	if l.place, err = claimPlace(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.release())
		}
	}()
	sharedMemory.Lock()
	l.writeDB, err = openWriter(l.place.database())
	sharedMemory.Unlock()
	if err != nil {
		return nil, err
	}
	if l.readDB, err = openReaders(l.place.database()); err != nil {
		return nil, err
	}
	if err = l.lookup.prepare(l.readDB); err != nil {
		return nil, err
	}
	if l.w, err = newWriter(l, recipient); err != nil {
		return nil, err
	}
	l.foundRows, l.foundTable = l.entries.Load(), l.w.known.table
	if err = l.lookAtStart(); err != nil {
		return nil, err
	}
	if err = l.recover(); err != nil {
		return nil, fmt.Errorf("recovering: %w", err)
	}
	go l.w.drain.loop()
	return l, nil
}

// lookAtStart makes the checks that take no key. What they find makes the
// ledger quarantined and does not keep it from opening.
func (l *Ledger) lookAtStart() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*busyMillis*time.Millisecond)
	defer cancel()
	err := l.checkStart(ctx)
	if err != nil && !errors.Is(err, ErrTampered) {
		return explain(err)
	}
	l.w.setDoubt(err)
	return nil
}

// Recovered tells how many operations Open found executing and queued.
func (l *Ledger) Recovered() (indeterminate, denied int) {
	return l.recoveredIndeterminate, l.recoveredDenied
}

// Close writes what is queued, brings the journal into the database, folds the
// write-ahead log into the file and lets go of the lock. Later calls of other
// methods fail.
func (l *Ledger) Close() error {
	l.closing.Do(func() {
		// Where the database cannot be written the rows stay in the journal,
		// and a reader elsewhere may keep the log from being folded; the next
		// start does it then, so neither is a failure.
		ctx, cancel := context.WithTimeout(context.Background(), busyMillis*time.Millisecond)
		defer cancel()
		err := l.w.stop()
		_ = l.w.leaveJournal()
		_, _ = l.w.drain.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
		l.closeErr = errors.Join(err, l.release())
	})
	return l.closeErr
}

// release closes everything that open opened; the lock goes last.
func (l *Ledger) release() error {
	var errs []error
	if l.w != nil {
		errs = append(errs, l.w.close())
	}
	if l.readDB != nil {
		errs = append(errs, l.readDB.Close())
	}
	if l.writeDB != nil {
		errs = append(errs, l.writeDB.Close())
	}
	if l.w != nil {
		errs = append(errs, l.w.watch.close())
	}
	errs = append(errs, l.place.release())
	return errors.Join(errs...)
}

// Entries is the number of durable rows.
func (l *Ledger) Entries() (int64, error) { return l.entries.Load(), nil }

// Commits is the number of groups, and so of syncs that callers waited for,
// since Open.
func (l *Ledger) Commits() int64 { return l.w.commits.Load() }

// Append writes one row; it is durable on return. A cancelled ctx returns
// only while nothing was written.
func (l *Ledger) Append(ctx context.Context, r Row) (int64, error) {
	plain, err := l.encode(r)
	if err != nil {
		return 0, err
	}
	var n int64
	err = l.w.do(ctx, func(b *batch) error {
		n = b.append(plain)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("recording %s: %w", r.Kind, err)
	}
	return n, nil
}

// AppendSoon hands a row to the next commit, at most 10 ms away. If that
// fails the ledger is unhealthy and keeps the row for the next try.
func (l *Ledger) AppendSoon(r Row) {
	plain := l.encodeAnyway(r)
	_ = l.w.handOver(&job{keep: true, run: func(b *batch) error { // what it cannot take it counts
		b.append(plain)
		return nil
	}})
}

// Healthy is nil, or an error wrapping ErrUnavailable from the moment that
// something could not be written until it can be, and what has happened has
// been. It wraps ErrTampered from the moment that the file was found changed.
func (l *Ledger) Healthy() error {
	l.w.look()
	return l.w.healthy()
}
