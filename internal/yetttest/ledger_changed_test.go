package yetttest

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
	_ "modernc.org/sqlite"
)

// changeLedger is another program of the account that writes to ledger.db.
func changeLedger(t *testing.T, b *Broker, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.Home, "ledger.db")+"?mode=rw&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.Exec(statement)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.RowsAffected(); n == 0 {
		t.Fatalf("%s changed nothing", statement)
	}
}

// TestA03_ChangedOperationLetsNothingRun: an equal POST whose outcome is
// unknown does not run without its card because somebody edited the ledger,
// beside the broker or between two runs.
func TestA03_ChangedOperationLetsNothingRun(t *testing.T) {
	for _, statement := range []string{
		"UPDATE operations SET unsafe=0 WHERE state='indeterminate'",
		"DELETE FROM operations WHERE state='indeterminate'",
	} {
		for _, beside := range []bool{true, false} {
			up, arrived := hangs(t)
			b := Start(t, up.Access(), "demo", canary)
			c := b.Granted("http:demo.write")
			post := map[string]any{"method": "POST", "path": "/v1/hang"}
			c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write", "action": post}), nil)
			<-arrived
			b.Restart() // the outcome is unknown now
			if !beside {
				b.Kill()
			}
			changeLedger(t, b, statement)
			if !beside {
				b.Serve()
				b.Must("unlock")
			}
			c = b.Granted("http:demo.write")
			for range 2 {
				if r := c.Act("http:demo.write", post); r.Code() != wire.CodeQuarantined {
					t.Errorf("%s, beside %v: %q", statement, beside, r.Code())
				}
			}
			if r := c.Act("http:demo.write", map[string]any{"method": "POST", "path": "/v1/other"}); r.Code() != wire.CodeQuarantined {
				t.Errorf("%s, beside %v, another action: %q", statement, beside, r.Code())
			}
			if seen := up.Seen(); len(seen) != 1 {
				t.Errorf("%s, beside %v: upstream saw %v", statement, beside, seen)
			}
			var st wire.Status
			b.Must("status", "--json").JSON(t, &st)
			if st.State != wire.CodeQuarantined || !strings.Contains(st.Ledger, "changed by another program") {
				t.Errorf("status: %+v", st)
			}
			told := slices.ContainsFunc(b.Activity(), func(r Row) bool { return r.Kind == "ledger.refused" })
			if told == beside {
				t.Errorf("%s, beside %v: row ledger.refused %v", statement, beside, told)
			}
			if r := b.Run("audit", "verify", "--rows"); r.Code != 1 {
				t.Errorf("verify --rows: %d %s", r.Code, r.Stdout)
			}
			// Once a person has acknowledged, actions run; the equal one is as
			// unknown as it was.
			b.Must("audit", "acknowledge", "--note", "it was me")
			if r := c.Act("http:demo.write", post); r.Code() != wire.CodeOutcomeUnknown {
				t.Errorf("%s, beside %v, acknowledged: %q", statement, beside, r.Code())
			}
			c.MustAct("http:demo.write", map[string]any{"method": "POST", "path": "/v1/other"})
			if r := b.Run("audit", "verify", "--rows"); r.Code != 0 {
				t.Errorf("acknowledged, verify --rows: %d %s", r.Code, r.Stdout)
			}
		}
	}
}
