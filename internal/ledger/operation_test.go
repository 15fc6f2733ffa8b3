package ledger

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

var states = []action.State{"", action.Queued, action.Executing, action.Completed, action.Denied, action.Indeterminate}

// bring makes op and brings it into a state by the ordinary ways.
func bring(t *testing.T, l *Ledger, op Operation, to action.State) {
	t.Helper()
	var err error
	switch to {
	case "":
	case action.Queued:
		_, err = l.Queue(t.Context(), op, row("queued"))
	case action.Denied:
		_, err = l.Refuse(t.Context(), op, row("denied"))
	default:
		mustBegin(t, l, op)
		if to != action.Executing {
			err = <-l.End(op.ID, to, "", row("outcome"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStateMachineOverAllPairs tries from every state every change that the
// interface has; what is impossible is an error and changes nothing.
func TestStateMachineOverAllPairs(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	type change struct {
		name string
		to   action.State
		from []action.State // where it is possible
		do   func(op Operation) error
	}
	end := func(s action.State) func(op Operation) error {
		return func(op Operation) error { return <-l.End(op.ID, s, "code", row("outcome")) }
	}
	changes := []change{
		{"Queue", action.Queued, []action.State{""}, func(op Operation) error { _, err := l.Queue(t.Context(), op, row("queued")); return err }},
		{"Refuse", action.Denied, []action.State{""}, func(op Operation) error { _, err := l.Refuse(t.Context(), op, row("denied")); return err }},
		{"Begin", action.Executing, []action.State{"", action.Queued}, func(op Operation) error { _, err := l.Begin(t.Context(), op, row("intent"), nil); return err }},
		{"Deny", action.Denied, []action.State{action.Queued}, func(op Operation) error { return l.Deny(t.Context(), op.ID, "code", row("denied")) }},
		{"End completed", action.Completed, []action.State{action.Executing}, end(action.Completed)},
		{"End denied", action.Denied, []action.State{action.Executing}, end(action.Denied)},
		{"End indeterminate", action.Indeterminate, []action.State{action.Executing}, end(action.Indeterminate)},
		{"End executing", action.Executing, nil, end(action.Executing)},
		{"End queued", action.Queued, nil, end(action.Queued)},
		{"End without state", "", nil, end("")},
		{"End nonsense", "nonsense", nil, end("nonsense")},
		{"Resolve", action.Indeterminate, []action.State{action.Indeterminate}, func(op Operation) error { return l.Resolve(t.Context(), op.ID, row("resolved")) }},
	}
	for _, from := range states {
		for _, c := range changes {
			op := newOperation()
			bring(t, l, op, from)
			before, _, _ := l.Operation(op.ID)
			entries, _ := l.Entries()
			err := c.do(op)
			after, _, _ := l.Operation(op.ID)
			now, _ := l.Entries()
			possible := false
			for _, s := range c.from {
				possible = possible || s == from
			}
			switch {
			case possible && (err != nil || after.State != c.to || now != entries+1):
				t.Errorf("%q, %s: %v, now %q", from, c.name, err, after.State)
			case !possible && (!errors.Is(err, ErrTransition) && !errors.Is(err, ErrNoOperation)):
				t.Errorf("%q, %s: error %v", from, c.name, err)
			case !possible && (!reflect.DeepEqual(before, after) || now != entries):
				t.Errorf("%q, %s changed %+v to %+v", from, c.name, before, after)
			}
		}
	}
	if err := l.Healthy(); err != nil {
		t.Error(err)
	}
	if r := mustVerify(t, in, in.opener(t)); !r.OK {
		t.Errorf("%v", r.Problems)
	}
}

func TestOperationComesBackAsGiven(t *testing.T) {
	l := newInstallation(t).open(t)
	want := newOperation()
	want.Code, want.Idempotency, want.BudgetKey, want.Unsafe = "code", []byte("idem"), []byte("budget"), true
	want.CreatedAt = time.Date(2026, 5, 4, 3, 2, 1, 7, time.UTC)
	want.Intent = mustBegin(t, l, want)
	want.LastRow, want.State = want.Intent, action.Executing
	for name, find := range map[string]func() (Operation, bool, error){
		"id":         func() (Operation, bool, error) { return l.Operation(want.ID) },
		"key":        func() (Operation, bool, error) { return l.ByIdempotency(want.Idempotency) },
		"unresolved": func() (Operation, bool, error) { return l.Unresolved(want.Digest) },
	} {
		if got, ok, err := find(); err != nil || !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("by %s: %+v %v %v", name, got, ok, err)
		}
	}
	if _, ok, err := l.ByIdempotency(nil); ok || err != nil {
		t.Errorf("no key: %v %v", ok, err)
	}
}

func TestBeginTakesOnlyWhatWasQueued(t *testing.T) {
	l := newInstallation(t).open(t)
	op := newOperation()
	bring(t, l, op, action.Queued)
	for name, other := range map[string]func(o *Operation){
		"action":  func(o *Operation) { o.Digest = []byte("another action") },
		"session": func(o *Operation) { o.Session = "session-2" },
	} {
		changed := op
		other(&changed)
		if _, err := l.Begin(t.Context(), changed, row("intent"), nil); !errors.Is(err, ErrTransition) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	mustBegin(t, l, op)
}

func TestUnusableOperationsAreRefused(t *testing.T) {
	l := newInstallation(t).open(t)
	for name, spoil := range map[string]func(o *Operation){
		"no id":     func(o *Operation) { o.ID = "" },
		"no digest": func(o *Operation) { o.Digest = nil },
		"far time":  func(o *Operation) { o.CreatedAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		op := newOperation()
		spoil(&op)
		if _, err := l.Begin(t.Context(), op, row("intent"), nil); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	op := newOperation()
	if _, err := l.Begin(t.Context(), op, row("intent"), &Budget{Max: 1, Window: time.Hour}); err == nil {
		t.Error("a budget without a key was taken")
	}
	op.Digest = nil
	if _, err := l.Refuse(t.Context(), op, row("denied")); err != nil {
		t.Errorf("a refusal needs no digest: %v", err)
	}
	if n, _ := l.Entries(); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// TestE1_OutcomeIsWrittenWhateverItsRowHolds: a row that cannot be encoded
// must not leave the operation executing.
func TestE1_OutcomeIsWrittenWhateverItsRowHolds(t *testing.T) {
	in := newInstallation(t)
	l := in.open(t)
	bad := map[string]Row{
		"no JSON": {Kind: "outcome", Outcome: json.RawMessage("{")},
		"too big": {Kind: "outcome", Outcome: json.RawMessage(`"` + string(make([]byte, maxRow)) + `"`)},
		"no year": {Kind: "outcome", At: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	for name, r := range bad {
		if _, err := l.Append(t.Context(), r); err == nil {
			t.Errorf("%s: Append took it", name)
		}
		op := newOperation()
		mustBegin(t, l, op)
		if err := <-l.End(op.ID, action.Completed, "", r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, _, _ := l.Operation(op.ID); got.State != action.Completed {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, r := range allRows(t, l, in.opener(t)) {
		if r.Kind == "outcome" && string(r.Outcome) != `{"not_recorded":"the parts of this row could not be encoded"}` {
			t.Errorf("row %+v", r)
		}
	}
}

// TestLookupsAreIndexed keeps every query of a Begin and a lookup from
// reading through the table.
func TestLookupsAreIndexed(t *testing.T) {
	l := newInstallation(t).open(t)
	for query, want := range map[string]string{
		selectOperation + "WHERE id='x'": "SEARCH operations USING PRIMARY KEY (id=?)",
		"SELECT id FROM operations WHERE digest=x'00' AND unsafe=1 AND state IN ('executing','indeterminate') AND resolved=0 AND " + isOpen: "SEARCH operations USING INDEX operations_open (digest=?)",
		"SELECT id FROM operations WHERE idem=x'00' AND idem IS NOT NULL":                                                                   "SEARCH operations USING COVERING INDEX operations_idem (idem=?)",
		"SELECT 1 FROM operations WHERE budget_key=x'00' AND began>1 AND budget_key IS NOT NULL AND began > 0":                              "SEARCH operations USING COVERING INDEX operations_budget (budget_key=? AND began>?)",
	} {
		var id, parent, unused int
		var detail string
		if err := l.readDB.QueryRow("EXPLAIN QUERY PLAN "+query).Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		if detail != want {
			t.Errorf("%s\nis answered by %s", query, detail)
		}
	}
}
