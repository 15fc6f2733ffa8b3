package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

// ledgerFindings look at the heads of the ledger's files, which is cheap; yett
// audit verify checks the whole. A broker that runs knows better.
func ledgerFindings(ctx context.Context, home string, st *wire.Status) []Finding {
	if st != nil && st.Ledger != "ok" {
		return []Finding{bad("ledger", "the broker says that it "+approval.Printable(st.Ledger), LedgerStopped)}
	}
	h, err := ledger.LookAtHead(ctx, home)
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		return []Finding{weaker("ledger", "there is no ledger yet", NoLedger)}
	case err != nil:
		return []Finding{bad("ledger", approval.Printable(err.Error()), LedgerUnknown)}
	case h.Version >= 2 && h.Journal != "":
		return []Finding{bad("ledger", "ledger.journal: "+approval.Printable(h.Journal), LedgerUnknown)}
	}
	return []Finding{good("ledger", fmt.Sprintf("version %d, rows in the database: %d", h.Version, h.Entries))}
}
