package ledger

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestA03_LogOfTheDatabase: a broker died with its newest rows in SQLite's
// write-ahead log. There each byte of the last three rows is changed, and the
// log is cut off. The next start has all rows from the journal, or lets nothing
// run, as it does where the journal is gone too.
func TestA03_LogOfTheDatabase(t *testing.T) {
	key := newLogKey(t)
	live := newInstallation(t)
	smallSegments(t, live, 4*minSegment)
	l := live.open(t)
	for range 5 {
		mustBegin(t, l, newOperation())
		follow(t, l)
	}
	head, _, err := l.SignHead(key, 7)
	must(t, err)
	dead := image(t, live)
	log := readFile(t, filepath.Join(dead.dir, "ledger.db-wal"))
	var places []int
	for n := l.entries.Load() - 2; n <= l.entries.Load(); n++ {
		sealed, leaf := stored(t, live, n)
		for _, what := range [][]byte{sealed, leaf} {
			at := bytes.LastIndex(log, what)
			if at < 0 { // it lies over two pages
				continue
			}
			for i := 0; i < len(what); i += 6*apart() - 5 {
				places = append(places, at+i)
			}
		}
	}
	if len(places) < 30 {
		t.Fatalf("%d places", len(places))
	}
	spoil := map[string][]byte{"whole": log}
	for _, at := range places {
		spoil[fmt.Sprintf("byte %d changed", at)] = flipped(log, at)
	}
	for at := 0; at < len(log); at += 512 * apart() {
		spoil[fmt.Sprintf("cut at %d", at)] = log[:at]
	}
	restore := preserve(t, dead)
	for name, b := range spoil {
		for _, journal := range []bool{true, false} {
			restore()
			writeFile(t, filepath.Join(dead.dir, "ledger.db-wal"), b)
			if !journal {
				must(t, os.Remove(dead.journal()))
			}
			well := startsWell(t, dead, HeadFor{key, head, 7})
			if strings.HasPrefix(name, "cut") && journal { // so far that the database knows no journal in use: noticed as well
				continue
			}
			if well != journal {
				t.Errorf("the log: %s; there is a journal: %v; the start finds all rows: %v", name, journal, well)
			}
		}
	}
}

// startsWell reports whether a start and an unlocking have nothing against the
// ledger, all rows of its head included.
func startsWell(t *testing.T, in installation, h HeadFor) bool {
	t.Helper()
	l, err := Open(in.dir, Options{AuditPublicKey: in.public})
	if err != nil {
		return false
	}
	defer l.Close()
	return l.Quarantined() == nil && l.CheckHead(t.Context(), h) == nil && l.CheckOperations(t.Context(), in.opener(t), h.Generation) == nil
}
