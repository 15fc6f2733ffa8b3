package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/yett-broker/yett/internal/durable"
)

// ErrNoRow is returned for a row that the newest head is not over.
var ErrNoRow = errors.New("no such row under the newest head")

// ErrInconsistent is wrapped where a ledger is not what a head says it was.
var ErrInconsistent = errors.New("the ledger is not what the head is over")

// Proof shows that a row, sealed as it is, lies under a signed head. Whoever
// has the log's verifier key checks it without vault, broker or ledger. Hashes
// are the audit path of RFC 6962, some log2 of the rows.
type Proof struct {
	Version    int      `json:"version"` // 1
	Row        int64    `json:"row"`
	Epoch      int64    `json:"epoch"`
	Sealed     []byte   `json:"sealed"`
	Hashes     [][]byte `json:"hashes"`
	Checkpoint string   `json:"checkpoint"`
}

// ReadHead reads the newest head in dir. It is as it lies there: OpenCheckpoint
// checks it.
func ReadHead(dir string) ([]byte, error) {
	head, err := durable.ReadFile(filepath.Join(dir, HeadFile), maxHead)
	if err != nil {
		return nil, fmt.Errorf("reading the head: %w", err)
	}
	return head, nil
}

// Prove makes a proof for row n. It only reads, beside a running broker too.
func Prove(ctx context.Context, dir string, n int64) (p Proof, err error) {
	head, err := ReadHead(dir) // before the rows: they go on
	if err != nil {
		return p, err
	}
	c, err := readCheckpoint(head)
	if err != nil {
		return p, err
	}
	if n < 1 || n > c.Size {
		return p, fmt.Errorf("%w: it is over %d rows", ErrNoRow, c.Size)
	}
	p = Proof{Version: 1, Row: n, Checkpoint: string(head)}
	err = readTreeOf(ctx, dir, func(tx *sql.Tx, r nodeReader) error {
		if err := tx.QueryRowContext(ctx, "SELECT epoch, sealed FROM rows WHERE n=?", n).Scan(&p.Epoch, &p.Sealed); err != nil {
			return err
		}
		path, err := tlog.ProveRecord(c.Size, n-1, r)
		if err != nil {
			return err
		}
		for _, h := range path {
			p.Hashes = append(p.Hashes, h[:])
		}
		return p.check(c)
	})
	if err != nil {
		return Proof{}, fmt.Errorf("proving row %d: %w", n, err)
	}
	return p, nil
}

// ParseProof reads a proof and checks it with the log's verifier key.
func ParseProof(text []byte, verifierKey string) (Proof, Checkpoint, error) {
	var p Proof
	if err := json.Unmarshal(text, &p); err != nil {
		return p, Checkpoint{}, fmt.Errorf("reading a proof: %w", err)
	}
	if p.Version != 1 {
		return p, Checkpoint{}, fmt.Errorf("%w: a proof of version %d", ErrFormat, p.Version)
	}
	c, err := OpenCheckpoint([]byte(p.Checkpoint), verifierKey)
	if err == nil {
		err = p.check(c)
	}
	return p, c, err
}

func (p *Proof) check(c Checkpoint) error {
	path := make(tlog.RecordProof, len(p.Hashes))
	for i, h := range p.Hashes {
		if len(h) != len(path[i]) {
			return fmt.Errorf("%w: a hash of another length", ErrInconsistent)
		}
		copy(path[i][:], h)
	}
	if p.Row < 1 || p.Row > c.Size {
		return fmt.Errorf("%w: row %d of %d", ErrInconsistent, p.Row, c.Size)
	}
	if err := tlog.CheckRecord(path, c.Size, c.Root, p.Row-1, leafHash(p.Row, p.Epoch, p.Sealed)); err != nil {
		return fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	return nil
}

// Consistent checks that the ledger in dir goes on from an older head: that the
// rows under it are the first ones of those under the newest head.
func Consistent(ctx context.Context, dir string, old []byte, verifierKey string) (from, to Checkpoint, err error) {
	head, err := ReadHead(dir)
	if err != nil {
		return from, to, err
	}
	if from, err = OpenCheckpoint(old, verifierKey); err != nil {
		return from, to, fmt.Errorf("the older head: %w", err)
	}
	if to, err = OpenCheckpoint(head, verifierKey); err != nil {
		return from, to, fmt.Errorf("the newest head: %w", err)
	}
	if from.Size > to.Size {
		return from, to, fmt.Errorf("%w: it is over %d rows, and the newest head over %d", ErrInconsistent, from.Size, to.Size)
	}
	if from.Size == 0 {
		return from, to, nil
	}
	err = readTreeOf(ctx, dir, func(_ *sql.Tx, r nodeReader) error {
		p, err := tlog.ProveTree(to.Size, from.Size, r)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(p, to.Size, to.Root, from.Size, from.Root); err != nil {
			return fmt.Errorf("%w: %w", ErrInconsistent, err)
		}
		return nil
	})
	return from, to, err
}

func readTreeOf(ctx context.Context, dir string, read func(*sql.Tx, nodeReader) error) error {
	return snapshot(ctx, dir, func(tx *sql.Tx) error {
		version, err := checkVersion(ctx, tx)
		if err == nil && version < 3 {
			err = fmt.Errorf("%w: version %d has no nodes; a broker has to open it once", ErrFormat, version)
		}
		if err == nil {
			err = read(tx, nodeReader{ctx, tx})
		}
		if errors.Is(err, errNodes) || errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("%w: %w", ErrInconsistent, err)
		}
		return explain(err)
	})
}
