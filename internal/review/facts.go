package review

import (
	"fmt"
	"io"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/doctor"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

// Facts are what the page and the matrix are made from.
type Facts struct {
	At       time.Time
	Status   wire.Status
	Report   doctor.Report
	Access   []wire.Access
	Sessions wire.List[wire.Session]
	Secrets  wire.List[wire.Secret]
	Passkeys wire.List[wire.Passkey]
	Policy   *access.Policy // nil without the person's proof
	Kinds    map[string]int // of the newest rows
	Audit    *ledger.Report
	AuditErr error

	// What the yett that asks is, and knows.
	Version         string
	Profile, Limits string
	LockAfter       time.Duration // without another word of the broker's command line
}

// NewestRows is how many rows the page counts the kinds of.
const NewestRows = 5000

// Proven reports whether the person's proof opened reading.
func (r *Facts) Proven() bool { return r.Policy != nil }

// Write writes the page in Markdown.
func Write(w io.Writer, at time.Time, page []Topic) {
	fmt.Fprintf(w, "# Yett, as it runs at %s\n", at.UTC().Format(time.RFC3339))
	for _, t := range page {
		fmt.Fprintf(w, "\n## %s\n\n", t.Topic)
		for _, f := range t.Facts {
			fmt.Fprintf(w, "- %s (%s)\n", f.Fact, f.From)
		}
	}
}
