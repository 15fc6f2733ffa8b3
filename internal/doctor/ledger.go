package doctor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// What the first bytes of the ledger's files say; package ledger has the format.
const (
	sqliteMagic    = "SQLite format 3\x00"
	ledgerID       = 0x59455454 // "YETT", application_id at 68
	journalMagic   = "yett ledger journal\n"
	newestFormat   = 2
	sqliteHeader   = 100
	versionAt      = 60
	applicationAt  = 68
	bytesOfMagic   = len(journalMagic)
	journalMissing = "no journal yet"
)

// ledgerFindings look at the heads of the ledger's files, which is cheap and
// takes no lock; yett audit verify checks the whole.
func ledgerFindings(home string, st *wire.Status) []Finding {
	if st != nil && st.Ledger != "ok" {
		return []Finding{bad("ledger", "the broker says that it "+approval.Printable(st.Ledger), LedgerStopped)}
	}
	head, size, err := headOf(filepath.Join(home, "ledger.db"), sqliteHeader)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Finding{weaker("ledger", "there is no ledger yet", NoLedger)}
	case err != nil:
		return []Finding{bad("ledger", approval.Printable(err.Error()), LedgerUnknown)}
	case len(head) < sqliteHeader || !bytes.HasPrefix(head, []byte(sqliteMagic)):
		return []Finding{bad("ledger", "ledger.db is no database", LedgerUnknown)}
	}
	version, id := binary.BigEndian.Uint32(head[versionAt:]), binary.BigEndian.Uint32(head[applicationAt:])
	if id != ledgerID || version == 0 || version > newestFormat {
		return []Finding{bad("ledger", fmt.Sprintf("ledger.db is of application %#x, version %d: not a ledger that this release knows", id, version), LedgerUnknown)}
	}
	found := fmt.Sprintf("version %d, %d bytes", version, size)
	journal, size, err := headOf(filepath.Join(home, "ledger.journal"), bytesOfMagic)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Finding{good("ledger", found+", "+journalMissing)}
	case err != nil:
		return []Finding{bad("ledger", approval.Printable(err.Error()), LedgerUnknown)}
	case size > 0 && string(journal) != journalMagic:
		return []Finding{bad("ledger", "ledger.journal does not begin as a journal does", LedgerUnknown)}
	}
	return []Finding{good("ledger", fmt.Sprintf("%s, journal of %d bytes", found, size))}
}

// headOf reads the beginning of a regular file, without following a link and
// without waiting for whatever else lies there.
func headOf(path string, n int) ([]byte, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !st.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	head := make([]byte, n)
	got, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	return head[:got], st.Size(), nil
}
