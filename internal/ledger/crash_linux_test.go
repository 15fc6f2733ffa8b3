package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

var background = context.Background()

// TestA06_KilledBetweenIntentAndOutcome kills the broker with an intent and a
// queued operation on disk.
func TestA06_KilledBetweenIntentAndOutcome(t *testing.T) {
	in := newInstallation(t)
	p := in.start(t, "hold")
	p.line(t)
	p.kill()

	l := in.open(t)
	if i, d := l.Recovered(); i != 1 || d != 1 {
		t.Fatalf("recovered %d and %d", i, d)
	}
	op, _, err := l.Operation("executing")
	if err != nil || op.State != action.Indeterminate {
		t.Fatalf("%+v %v", op, err)
	}
	queued, _, err := l.Operation("queued")
	if err != nil || queued.State != action.Denied || queued.Code != "broker_restarted" {
		t.Fatalf("%+v %v", queued, err)
	}
	rows := allRows(t, l, in.opener(t))
	kinds := map[string]string{}
	for _, r := range rows[2:] {
		kinds[r.OperationID] = r.Kind
	}
	if len(rows) != 4 || kinds["executing"] != "recovered" || kinds["queued"] != "denied" {
		t.Fatalf("rows %v", rows)
	}
	// An equal unsafe action is not silently executed again.
	again := newOperation()
	again.Unsafe, again.Digest = true, op.Digest
	var unresolved ErrUnresolved
	if _, err := l.Begin(t.Context(), again, row("intent"), nil); !errors.As(err, &unresolved) || unresolved.ID != "executing" {
		t.Fatalf("the repetition: %v", err)
	}
	l.Close()
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Fatal(r.Problems)
	}
	// A second start finds nothing to do and rewrites nothing.
	l = in.open(t)
	if i, d := l.Recovered(); i != 0 || d != 0 {
		t.Fatalf("recovered again: %d and %d", i, d)
	}
	if n, _ := l.Entries(); n != 4 {
		t.Fatalf("%d entries", n)
	}
}

// TestA06_KilledAnywhere kills a working broker after its k-th durable step,
// for many k, on one ledger that lives through all of it.
func TestA06_KilledAnywhere(t *testing.T) {
	for k := 1; k <= 30; k++ {
		in := newInstallation(t)
		p := in.start(t, "workload")
		var said []string
		for range k {
			said = append(said, p.line(t))
		}
		said = append(said, p.kill()...)
		checkAfterKill(t, in, said)
		if t.Failed() {
			t.Fatalf("after step %d: %s", k, said[len(said)-1])
		}
	}
}

// checkAfterKill holds what the process said to be durable against what the
// next start finds.
func checkAfterKill(t *testing.T, in installation, said []string) {
	t.Helper()
	l := in.open(t)
	defer l.Close()
	last := map[string]string{}
	for _, line := range said {
		state, id, ok := strings.Cut(line, " ")
		if !ok || state == "error:" {
			t.Fatalf("the process failed: %s", line)
		}
		last[id] = state
	}
	for id, state := range last {
		op, ok, err := l.Operation(id)
		if err != nil || !ok {
			t.Errorf("%s was %s and is gone: %v", id, state, err)
			continue
		}
		want := map[string][]action.State{
			"queued":    {action.Denied},
			"executing": {action.Indeterminate, action.Completed}, // the outcome may have got through
			"completed": {action.Completed},
			"denied":    {action.Denied},
		}[state]
		if op.State != want[0] && op.State != want[len(want)-1] {
			t.Errorf("%s was %s and is %s", id, state, op.State)
		}
	}
	var open int
	if err := l.readDB.QueryRow("SELECT count(*) FROM operations WHERE state IN ('queued','executing')").Scan(&open); err != nil || open != 0 {
		t.Errorf("%d operations are still open: %v", open, err)
	}
	if n, _ := l.Entries(); n < int64(len(said)) {
		t.Errorf("%d entries for %d durable steps", n, len(said))
	}
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Errorf("%v", r.Problems)
	}
}

// TestKilledLedgerIsVerifiedAsItLies verifies before any broker has recovered.
func TestKilledLedgerIsVerifiedAsItLies(t *testing.T) {
	in := newInstallation(t)
	p := in.start(t, "hold")
	p.line(t)
	running := listing(t, in.dir)
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != 2 {
		t.Fatalf("running: %+v", r)
	}
	if now := listing(t, in.dir); now != running {
		t.Fatalf("beside a broker:\n%s\nnow:\n%s", running, now)
	}
	p.kill()
	before := listing(t, in.dir)
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != 2 {
		t.Fatalf("killed: %+v", r)
	}
	if now := listing(t, in.dir); now != before {
		t.Fatalf("after the kill:\n%s\nnow:\n%s", before, now)
	}
	in.open(t).Close()
	before = listing(t, in.dir)
	if r := mustVerify(t, in, in.opener(t)); !r.OK || r.Entries != 4 {
		t.Fatalf("closed: %+v", r)
	}
	if now := listing(t, in.dir); now != before {
		t.Fatalf("closed:\n%s\nnow:\n%s", before, now)
	}
	if strings.Contains(before, "-wal") || strings.Contains(before, "-shm") {
		t.Fatalf("a closed ledger leaves files:\n%s", before)
	}
}

// listing tells every file of dir with all that a reader must not change. No
// broker of this process may have the ledger open.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %v %v %v\n", e.Name(), fi.Mode(), fi.ModTime(), leafHash(0, 0, data))
	}
	return b.String()
}
