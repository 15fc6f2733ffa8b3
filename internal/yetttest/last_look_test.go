package yetttest

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
	_ "modernc.org/sqlite"
)

// TestE5_RevokedWhileTheIntentIsWritten: between the durable intent and the
// first byte the broker looks once more. A foreign program holds the ledger, so
// that the intent has to wait, and the session is revoked meanwhile.
func TestE5_RevokedWhileTheIntentIsWritten(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	for range 5 { // the revocation may come before the action got so far
		if op, met := revokedInTheMiddle(t, b); met {
			if op.State != "denied" || op.Reason == nil || op.Reason.Code != wire.ReasonRevoked {
				t.Errorf("%+v %s", op, op.Result)
			}
			if len(up.Seen()) != 0 {
				t.Errorf("%v arrived", up.Seen())
			}
			intents := 0
			for _, row := range b.Activity() {
				if row.OperationID == op.OperationID && row.Kind == "intent" {
					intents++
				}
			}
			if intents != 1 {
				t.Errorf("%d intents: the revocation did not meet the gap", intents)
			}
			return
		}
	}
	t.Fatal("the revocation never came while the intent waited")
}

func revokedInTheMiddle(t *testing.T, b *Broker) (op Operation, met bool) {
	c := b.Granted("http:demo.write")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.Home, "ledger.db"))
	must(t, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	hold, err := db.Conn(ctx)
	must(t, err)
	defer hold.Close()
	_, err = hold.ExecContext(ctx, "BEGIN IMMEDIATE")
	must(t, err)
	post := c.Next(map[string]any{"capability": "http:demo.write", "action": map[string]any{"method": "POST", "path": "/v1/x"}, "wait_ms": 30_000})
	frame, err := wire.EncodeRequest(901, wire.MethodActionRequest, post)
	must(t, err)
	c.Write(frame)
	c.Must(wire.MethodAccessList, c.Next(nil), nil) // the action was judged before this was
	revoked := make(chan struct{})
	go func() { // its own row waits for the ledger too
		defer close(revoked)
		b.RunPlain("revoke", c.Session.SessionID)
	}()
	for ended := false; !ended; time.Sleep(time.Millisecond) {
		var l wire.List[wire.Session] // of this process: reading them writes no row
		b.manage(wire.MethodSessionList, wire.Empty{}, nil, nil, &l)
		for _, s := range l.Items {
			ended = ended || s.SessionID == c.Session.SessionID && s.EndReason == "revoked"
		}
	}
	_, err = hold.ExecContext(ctx, "ROLLBACK")
	must(t, err)
	<-revoked
	for {
		r, ok := c.Read()
		if !ok {
			return op, false
		}
		if string(r.ID) == "901" {
			return op, r.Error == nil && json.Unmarshal(r.Result, &op) == nil
		}
	}
}
