package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
)

// Head is what the ends of the files say, without a look at what is between.
type Head struct {
	Version int
	Entries int64  // rows in the database; the journal may have some more
	Journal string // what is wrong with the journal, "" if nothing is
}

// LookAtHead reads format, schema, newest row and the journal's own structure,
// which is cheap. Like Verify it only reads, beside a running broker too.
func LookAtHead(ctx context.Context, dir string) (h Head, err error) {
	_, h.Journal, err = findJournal(ctx, dir)
	if err != nil {
		return h, fmt.Errorf("reading %s: %w", filepath.Join(dir, journalName), explain(err))
	}
	err = snapshot(ctx, dir, func(tx *sql.Tx) error {
		if h.Version, err = checkVersion(ctx, tx); err != nil {
			return err
		}
		if err := checkSchema(ctx, tx, h.Version); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT coalesce(max(n), 0) FROM rows").Scan(&h.Entries)
	})
	if err != nil {
		return h, fmt.Errorf("looking at the ledger: %w", explain(err))
	}
	return h, nil
}
