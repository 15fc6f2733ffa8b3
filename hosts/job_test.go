//go:build hosts && linux

package hosts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/hosts/standin"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

const (
	secret = "yett-canary-7f3a90c1d2e4b586" // the credential
	canary = "invoice 4711 is paid"         // what the API answers
)

// upstream is an API that wants the credential, and a broker that has it.
func upstream(t *testing.T) (*yetttest.Broker, *yetttest.Upstream) {
	t.Helper()
	u := yetttest.StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"answer":%q}`, canary)
	})
	return yetttest.Start(t, u.Access(), "demo", secret), u
}

var (
	askAccess = standin.Call{Tool: "request_access", Arguments: map[string]any{
		"capabilities": []string{"http:demo.read"}, "purpose": "read the invoices of March", "wait_ms": 45_000}}
	getInvoices = standin.Call{Tool: "http_request", Arguments: map[string]any{
		"capability": "http:demo.read", "method": "GET", "path": "/v1/invoices"}}
)

// TestHosts_Job: each host gets a person's yes and an answer of the API, and
// never the credential. Its card and what was seen of it are golden files.
func TestHosts_Job(t *testing.T) {
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			b, u, r, card := asks(t, h)
			seen := look(t, b, r, card)
			golden(t, h.name+".card.json", seen.names.document(t, card.Card))
			shows(t, b, card)
			b.Must("approve", card.ApprovalID, "--for", "10m", "--digest", card.CardDigest)
			results := r.results(2)
			if !strings.Contains(results[0].Text, "granted: http:demo.read") || results[0].Error {
				t.Errorf("request_access told the model %+v", results[0])
			}
			if !strings.Contains(results[1].Text, canary) || results[1].Error {
				t.Errorf("http_request told the model %+v", results[1])
			}
			if got := u.Seen(); len(got) != 1 || got[0] != "GET /v1/invoices" {
				t.Errorf("the API was asked for %v", got)
			}
			for where, bytesThere := range map[string][]byte{"the model": r.model.Heard(), "the host": r.out.bytes(), "the broker": b.Printed()} {
				if bytes.Contains(bytesThere, []byte(secret)) {
					t.Errorf("%s has seen the credential", where)
				}
			}
			ended(t, b, seen.session, "shim_exited", "agent_exited", "channel_closed")
			seen.offered = r.model.Offered()
			golden(t, h.name+".seen.txt", seen.String())
		})
	}
}

// asks runs a host until its card waits. Programs of 400 MB are hashed within
// two seconds or not at all, and then the card says so: on a machine that is
// too busy for that, the host is told no and another begins, three at most.
func asks(t *testing.T, h host) (*yetttest.Broker, *yetttest.Upstream, *running, yetttest.Card) {
	t.Helper()
	for try := 1; ; try++ {
		b, u := upstream(t)
		r := h.start(t, yettMCP(b), askAccess, getInvoices)
		card := waitCard(t, b, r)
		var c approval.Card
		must(t, json.Unmarshal(card.Card, &c))
		if c.Verified.Agent.Filesystem.NotHashed != "not finished in time" || try == 3 {
			return b, u, r, card
		}
		t.Logf("the card of %s has no digest: %s", h.name, c.Verified.Agent.Filesystem.NotHashed)
		b.Must("deny", card.ApprovalID)
		<-r.done
	}
}

// waitCard waits for the card of a host at work, as a person looks for it.
func waitCard(t *testing.T, b *yetttest.Broker, r *running) yetttest.Card {
	t.Helper()
	for {
		var cards []yetttest.Card
		b.Must("pending", "--json").JSON(t, &cards)
		if len(cards) == 1 {
			return cards[0]
		}
		select {
		case <-r.done:
			t.Fatalf("the host ended without a card; it printed\n%.4000s", r.out.bytes())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// shows looks for what a person must read on the terminal. How the card stands
// there as a whole is a golden file too, of the tests of cmd/yett.
func shows(t *testing.T, b *yetttest.Broker, card yetttest.Card) {
	t.Helper()
	var c approval.Card
	must(t, json.Unmarshal(card.Card, &c))
	text := b.Must("pending").Stdout
	for _, part := range []string{strings.ToUpper(c.Tag), fmt.Sprintf("pid %d", c.Verified.Agent.Kernel.PID), "A YES GIVES", "http:demo.read", card.CardDigest} {
		if !strings.Contains(text, part) {
			t.Errorf("the card on the terminal lacks %s:\n%s", part, text)
		}
	}
}

// ended waits for the end of a session, which must have one of the reasons.
func ended(t *testing.T, b *yetttest.Broker, id string, reasons ...string) {
	t.Helper()
	for deadline := time.Now().Add(yetttest.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, s := range b.Sessions() {
			if s.SessionID == id && s.State == "ended" {
				t.Logf("the session ended: %s", s.EndReason)
				if !slices.Contains(reasons, s.EndReason) {
					t.Errorf("the session ended with %s, want one of %v", s.EndReason, reasons)
				}
				return
			}
		}
	}
	t.Errorf("session %s does not end with its host", id)
}

// session returns the one session of a shim.
func session(t *testing.T, b *yetttest.Broker) wire.Session {
	t.Helper()
	var mine []wire.Session
	for _, s := range b.Sessions() {
		if s.Caller.Role == wire.RoleShim {
			mine = append(mine, s)
		}
	}
	if len(mine) != 1 {
		t.Fatalf("%d sessions of shims: %+v", len(mine), mine)
	}
	return mine[0]
}
