package yetttest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// The vault of every test is a copy of one. What a person does with the command
// line is done here over the same socket, by the same messages; tests of the
// command line itself use Run.
var template struct {
	once sync.Once
	file []byte
	keys *vault.Keys
	err  error
}

func makeTemplate(t testing.TB) {
	t.Helper()
	template.once.Do(func() { template.err = buildTemplate() })
	if template.err != nil {
		t.Fatalf("making the vault that tests copy: %v", template.err)
	}
}

// buildTemplate makes the vault as yett init does, and then gives its
// passphrase the lowest cost that a vault may have: each command that is run
// with the passphrase derives the keys anew.
func buildTemplate() error {
	dir, err := os.MkdirTemp("", "yt")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := vault.Create(dir, []byte(Passphrase)); err != nil {
		return err
	}
	v, err := vault.Load(dir)
	if err != nil {
		return err
	}
	defer v.Lock()
	for _, s := range v.Slots() {
		if s.Name != vault.SlotPassphrase {
			continue
		}
		keys, err := vault.Derive([]byte(Passphrase), s.KDF)
		if err != nil {
			return err
		}
		if err := v.Unlock(vault.SlotPassphrase, keys.Unlock); err != nil {
			return err
		}
		cheap := vault.NewKDF()
		cheap.Time, cheap.MemoryKiB = 2, 19<<10
		if template.keys, err = vault.Derive([]byte(Passphrase), cheap); err != nil {
			return err
		}
		if err := v.SetSlot(vault.SlotPassphrase, cheap, template.keys); err != nil {
			return err
		}
	}
	template.file, err = os.ReadFile(filepath.Join(dir, vault.FileName))
	return err
}

// manage makes one management request on a connection of its own. For a proof,
// message makes the bytes that it covers.
func (b *Broker) manage(method string, request any, message func(raw []byte, nonce string) []byte, before func(*client.Conn), result any) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	if err != nil {
		b.T.Fatalf("%s: %v", method, err)
	}
	defer conn.Close()
	if before != nil {
		before(conn)
	}
	b.send(ctx, conn, method, request, message, result)
}

func (b *Broker) send(ctx context.Context, conn *client.Conn, method string, request any, message func(raw []byte, nonce string) []byte, result any) {
	b.T.Helper()
	raw, err := json.Marshal(request)
	if err != nil {
		b.T.Fatal(err)
	}
	m := wire.Managed{Request: raw}
	if message != nil {
		var c wire.Challenge
		if err := conn.Call(ctx, wire.MethodVaultChallenge, wire.Managed{Request: json.RawMessage("{}")}, &c); err != nil {
			b.T.Fatalf("%s: %v", method, err)
		}
		m.Proof = &wire.Proof{Nonce: c.Nonce, MAC: vault.Proof(template.keys.Approval, message(raw, c.Nonce))}
	}
	if err := conn.Call(ctx, method, m, result); err != nil {
		b.T.Fatalf("%s: %v", method, err)
	}
}

// proven is the message of every proof but a decision's.
func proven(method string) func([]byte, string) []byte {
	return func(raw []byte, nonce string) []byte { return approval.ProofMessage(method, raw, nonce) }
}

// reading opens reading on a connection.
func (b *Broker) reading(conn *client.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	b.send(ctx, conn, wire.MethodActivityRead, wire.Empty{}, proven(wire.MethodActivityRead), nil)
}

// Unlock opens the vault.
func (b *Broker) Unlock() {
	b.T.Helper()
	b.manage(wire.MethodVaultUnlock, wire.Unlock{Slot: vault.SlotPassphrase, UnlockKey: template.keys.Unlock}, nil, nil, nil)
}

// Apply applies an access file.
func (b *Broker) Apply(text string) {
	b.T.Helper()
	b.manage(wire.MethodAccessApply, wire.AccessApply{File: text}, proven(wire.MethodAccessApply), nil, nil)
}

// SetSecret gives a declared credential its value.
func (b *Broker) SetSecret(name, value string) {
	b.T.Helper()
	b.manage(wire.MethodSecretSet, wire.SecretSet{Name: name, Value: []byte(value)}, proven(wire.MethodSecretSet), nil, nil)
}

// Card is a waiting card as yett pending --json prints it.
type Card = wire.Approval

// Pending returns the waiting cards.
func (b *Broker) Pending() []Card {
	b.T.Helper()
	var l wire.List[Card]
	b.manage(wire.MethodApprovalList, wire.Empty{}, nil, b.reading, &l)
	return l.Items
}

// WaitCard returns the first waiting card, once there is one.
func (b *Broker) WaitCard() Card {
	b.T.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if cards := b.Pending(); len(cards) > 0 {
			return cards[0]
		}
	}
	b.T.Fatal("no card came")
	return Card{}
}

// Approve approves a card: "--once", or "--for" and a duration.
func (b *Broker) Approve(c Card, how ...string) {
	b.T.Helper()
	r := wire.Approve{ApprovalID: c.ApprovalID, CardDigest: c.CardDigest, Choice: approval.ChoiceOnce}
	if len(how) == 2 && how[0] == "--for" {
		d, err := time.ParseDuration(how[1])
		if err != nil {
			b.T.Fatal(err)
		}
		r.Choice, r.Until = approval.ChoiceUntil, time.Now().Add(d).UTC()
	}
	b.manage(wire.MethodApprovalApprove, r, func(_ []byte, nonce string) []byte {
		return approval.DecisionMessage(r.CardDigest, r.Choice, r.Until, nonce)
	}, nil, nil)
}

// Sessions returns the sessions of this broker instance.
func (b *Broker) Sessions() []wire.Session {
	b.T.Helper()
	var l wire.List[wire.Session]
	b.manage(wire.MethodSessionList, wire.Empty{}, nil, b.reading, &l)
	return l.Items
}

// Row is a row of the ledger as yett activity --json prints it.
type Row struct {
	N           int64           `json:"n"`
	Kind        string          `json:"kind"`
	SessionID   string          `json:"session_id"`
	OperationID string          `json:"operation_id"`
	Verified    json.RawMessage `json:"verified"`
	Claimed     json.RawMessage `json:"claimed"`
	Granted     json.RawMessage `json:"granted"`
	Request     json.RawMessage `json:"request"`
	Outcome     json.RawMessage `json:"outcome"`
}

// Activity returns the rows of the ledger.
func (b *Broker) Activity() []Row {
	b.T.Helper()
	var rows []Row
	for from := int64(1); ; {
		var l wire.List[Row]
		b.manage(wire.MethodActivityList, wire.ActivityList{From: from, Limit: 500}, nil, b.reading, &l)
		if len(l.Items) == 0 {
			return rows
		}
		rows = append(rows, l.Items...)
		from = rows[len(rows)-1].N + 1
		if len(l.Items) < 3 { // each page opens reading, which is a row of its own
			return rows
		}
	}
}
