package yetttest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
	_ "modernc.org/sqlite"
)

// TestE5_RevokedWhileTheIntentIsWritten: between the durable intent and the
// first byte the broker looks once more. A foreign program holds the database of
// the ledger until its journal is full, so that an intent has to wait, and the
// session is revoked meanwhile.
func TestE5_RevokedWhileTheIntentIsWritten(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	for range 5 { // the revocation may come before the action got so far
		if op, sent, met := revokedInTheMiddle(t, b); met {
			if op.State != "denied" || op.Reason == nil || op.Reason.Code != wire.ReasonRevoked {
				t.Errorf("%+v %s", op, op.Result)
			}
			if arrived := strings.Join(up.Seen(), "\n"); strings.Contains(arrived, "/v1/"+sent+" ") || strings.HasSuffix(arrived, "/v1/"+sent) {
				t.Errorf("%s arrived", sent)
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

func revokedInTheMiddle(t *testing.T, b *Broker) (op Operation, last string, met bool) {
	c := b.Granted("http:demo.write")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.Home, "ledger.db")+"?_pragma=busy_timeout(10000)")
	must(t, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	hold, err := db.Conn(ctx)
	must(t, err)
	defer hold.Close()
	_, err = hold.ExecContext(ctx, "BEGIN IMMEDIATE")
	must(t, err)
	replies := make(chan Reply, 1)
	go func() {
		defer close(replies)
		for r, ok := c.Read(); ok; r, ok = c.Read() {
			replies <- r
		}
	}()
	sent := fillJournal(t, c, replies)
	if sent == 0 {
		return op, "", false
	}
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
	for r := range replies {
		if string(r.ID) == fmt.Sprint(sent) {
			return op, fmt.Sprint(sent), r.Error == nil && json.Unmarshal(r.Result, &op) == nil
		}
	}
	return op, "", false
}

// fillJournal lets actions with big bodies run until one has to wait, and
// returns the id of its request.
func fillJournal(t *testing.T, c *Channel, replies <-chan Reply) (waits int) {
	body := strings.Repeat("x", 60<<10)
	for id := 1001; id < 1200; id++ {
		frame, err := wire.EncodeRequest(int64(id), wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write",
			"action": map[string]any{"method": "POST", "path": fmt.Sprintf("/v1/%d", id), "body": body}, "wait_ms": 30_000}))
		must(t, err)
		c.Write(frame)
		select {
		case r := <-replies:
			if r.Error != nil {
				return 0
			}
		case <-time.After(500 * time.Millisecond):
			return id
		}
	}
	return 0
}
