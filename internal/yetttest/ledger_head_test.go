package yetttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// unproven makes a management request without the proof that it wants.
func (b *Broker) unproven(method string, request any) error {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	must(b.T, err)
	defer conn.Close()
	raw, err := json.Marshal(request)
	must(b.T, err)
	return conn.Call(ctx, method, wire.Managed{Request: raw}, nil)
}

// TestA03_RollbackIsQuarantined: an older copy of one of the files that know of
// each other lets nothing run until a person has acknowledged by proof, also
// after a restart. Reading, locking and stopping go on.
func TestA03_RollbackIsQuarantined(t *testing.T) {
	ledgerFiles := []string{"ledger.db", "ledger.journal"}
	for name, files := range map[string][]string{
		"the ledger's database and journal": ledgerFiles,
		"all files of the ledger":           append([]string{"ledger.head"}, ledgerFiles...),
		"the vault":                         {vault.FileName, vault.FileName + ".prev"},
		"the vault and the head's file":     {vault.FileName, vault.FileName + ".prev", "ledger.head"},
		"the head's file, taken away":       {"ledger.head"},
	} {
		up := StartUpstream(t, canary)
		b := Start(t, up.Access(), "demo", canary)
		b.Stop()
		older := map[string][]byte{}
		for _, f := range files {
			older[f], _ = os.ReadFile(filepath.Join(b.Home, f))
		}
		b.Serve()
		b.Unlock()
		c := b.Granted("http:demo.read")
		get := map[string]any{"method": "GET", "path": "/v1/document"}
		c.MustAct("http:demo.read", get)
		b.manage(wire.MethodSecretRotate, wire.SecretSet{Name: "demo", Value: []byte(canary)}, proven(wire.MethodSecretRotate), nil, nil)
		b.Stop()
		for f, data := range older {
			path := filepath.Join(b.Home, f)
			if strings.HasSuffix(name, "away") {
				must(t, os.Remove(path))
				continue
			}
			must(t, os.WriteFile(path, data, 0o600))
		}
		for range 2 {
			b.Serve()
			b.Unlock()
			var st wire.Status
			b.Must("status", "--json").JSON(t, &st)
			if st.State != wire.CodeQuarantined {
				t.Errorf("%s: %+v", name, st)
			}
			c = b.Granted("http:demo.read")
			r := c.Act("http:demo.read", get)
			if r.Code() != wire.CodeQuarantined || !strings.Contains(fmt.Sprint(r.Error.Data), "yett audit acknowledge") {
				t.Errorf("%s: an action: %q %v", name, r.Code(), r.Error)
			}
			if len(up.Seen()) != 1 {
				t.Errorf("%s: upstream saw %v", name, up.Seen())
			}
			if r := b.Run("audit", "verify", "--rows"); r.Code != 1 {
				t.Errorf("%s: verify --rows: %d %s", name, r.Code, r.Stdout)
			}
			b.Must("lock")
			b.Must("unlock")
			if !slices.ContainsFunc(b.Activity(), func(r Row) bool { return r.Kind == "ledger.refused" }) {
				t.Errorf("%s: no row says so", name)
			}
			b.Stop()
		}
		b.Serve()
		b.Unlock()
		if r := b.RunPlain("audit", "acknowledge"); r.Code != 3 {
			t.Errorf("%s: without a proof: %d %s", name, r.Code, r.Stderr)
		}
		if r := b.RunWith("", "not the passphrase", "audit", "acknowledge"); r.Code != 3 {
			t.Errorf("%s: with a wrong proof: %d %s", name, r.Code, r.Stderr)
		}
		for method, request := range map[string]any{wire.MethodLedgerAccept: wire.Acknowledge{}, wire.MethodLedgerExport: wire.Export{},
			wire.MethodOperationSettle: wire.OperationResolve{OperationID: "op"}} {
			if err := b.unproven(method, request); !errors.Is(err, &wire.Error{Code: wire.CodeProofRequired}) {
				t.Errorf("%s: %s without a proof: %v", name, method, err)
			}
		}
		var done wire.Acknowledged
		b.Must("audit", "acknowledge", "--note", "restored it myself", "--json").JSON(t, &done)
		if kept, _ := filepath.Glob(filepath.Join(b.Home, "ledger.head.kept-*")); strings.HasSuffix(name, "away") == (len(kept) == 1) {
			t.Errorf("%s: kept %v", name, kept)
		}
		rows := b.Activity()
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Kind == "ledger.acknowledged" })
		if i < 0 || !strings.Contains(string(rows[i].Request), "restored it myself") || !strings.Contains(string(rows[i].Outcome), "yett-ledger-") {
			t.Fatalf("%s: the row: %d", name, i)
		}
		for range 2 {
			c = b.Granted("http:demo.read")
			c.MustAct("http:demo.read", get)
			b.Restart()
		}
		if r := b.Run("audit", "verify", "--rows"); r.Code != 0 {
			t.Errorf("%s: afterwards: %s", name, r.Stdout)
		}
		if r := b.Run("audit", "acknowledge"); r.Code != 1 {
			t.Errorf("%s: acknowledged twice: %d", name, r.Code)
		}
	}
}
