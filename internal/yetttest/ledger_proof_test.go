package yetttest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// checkpointed prints the head once it is over some rows.
func checkpointed(b *Broker, rows int64) (text string, size int64) {
	b.T.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		text = b.RunPlain("audit", "checkpoint").Stdout
		if fmt.Sscanf(text, "%s\n%d\n", new(string), &size); size >= rows {
			return text, size
		}
	}
	b.T.Fatalf("no head over %d rows:\n%s", rows, text)
	return "", 0
}

// TestA03_HeadAndProofForOthers: what the command line prints convinces a
// library that is not ours, and nothing that was changed convinces anybody.
func TestA03_HeadAndProofForOthers(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read")
	get := map[string]any{"method": "GET", "path": "/v1/document"}
	c.MustAct("http:demo.read", get)
	old, before := checkpointed(b, 5)
	kept := filepath.Join(t.TempDir(), "old")
	must(t, os.WriteFile(kept, []byte(old), 0o600))
	for range 80 {
		c.MustAct("http:demo.read", get)
	}
	text, size := checkpointed(b, before+160)

	key := strings.TrimSpace(b.RunPlain("audit", "checkpoint", "--key").Stdout)
	verifier, err := note.NewVerifier(key)
	must(t, err)
	_, err = note.Open([]byte(text), note.VerifierList(verifier))
	must(t, err)
	if r := b.RunPlain("audit", "consistency", kept); r.Code != 0 || !strings.Contains(r.Stdout, "ok") {
		t.Errorf("consistency: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	file := filepath.Join(t.TempDir(), "proof")
	if r := b.RunPlain("audit", "prove", "3", "--out", file); r.Code != 0 {
		t.Fatalf("prove: %s", r.Stderr)
	}
	proof, err := os.ReadFile(file)
	must(t, err)
	var p struct {
		Row, Epoch int64
		Sealed     []byte
		Hashes     [][]byte
		Checkpoint string
	}
	must(t, json.Unmarshal(proof, &p))
	n, err := note.Open([]byte(p.Checkpoint), note.VerifierList(verifier))
	must(t, err)
	var over int64
	fmt.Sscan(strings.Split(n.Text, "\n")[1], &over)
	root, err := tlog.ParseHash(strings.Split(n.Text, "\n")[2])
	must(t, err)
	data := binary.BigEndian.AppendUint64([]byte("yett ledger row v1\n"), uint64(p.Row))
	data = append(binary.BigEndian.AppendUint64(data, uint64(p.Epoch)), p.Sealed...)
	var path tlog.RecordProof
	for _, h := range p.Hashes {
		path = append(path, tlog.Hash(h))
	}
	must(t, tlog.CheckRecord(path, over, root, p.Row-1, tlog.RecordHash(data)))
	if over < size {
		t.Errorf("the proof is under an older head: %d, %d", over, size)
	}

	elsewhere := New(t) // no ledger, no broker
	verify := func(file string) Result { return elsewhere.RunPlain("audit", "verify-proof", file, "--key", key) }
	if r := verify(file); r.Code != 0 {
		t.Errorf("verify-proof: %s", r.Stderr)
	}
	for i, change := range []func() string{
		func() string { return strings.Replace(string(proof), `"row":3`, `"row":4`, 1) },
		func() string {
			return strings.Replace(string(proof), base64.StdEncoding.EncodeToString(p.Sealed), base64.StdEncoding.EncodeToString(append([]byte{1}, p.Sealed...)), 1)
		},
		func() string {
			return strings.Replace(string(proof), base64.StdEncoding.EncodeToString(p.Hashes[0]), base64.StdEncoding.EncodeToString(p.Hashes[1]), 1)
		},
		func() string {
			return strings.Replace(string(proof), fmt.Sprintf(`\n%d\n`, over), fmt.Sprintf(`\n%d\n`, over+1), 1)
		},
		func() string { return "{}" },
	} {
		wrong := change()
		if wrong == string(proof) {
			t.Fatalf("change %d changes nothing", i)
		}
		changed := filepath.Join(t.TempDir(), "changed")
		must(t, os.WriteFile(changed, []byte(wrong), 0o600))
		if r := verify(changed); r.Code != 1 || r.Stdout != "" {
			t.Errorf("change %d: %d %s", i, r.Code, r.Stdout)
		}
	}
	for _, row := range []string{"0", "99999999"} {
		if r := b.RunPlain("audit", "prove", row); r.Code != 1 {
			t.Errorf("prove %s: %d %s", row, r.Code, r.Stdout)
		}
	}
	// An older ledger does not go on from a newer head.
	newer := filepath.Join(t.TempDir(), "newer")
	must(t, os.WriteFile(newer, []byte(p.Checkpoint), 0o600))
	b.Stop()
	must(t, os.WriteFile(filepath.Join(b.Home, "ledger.head"), []byte(old), 0o600))
	if r := b.RunPlain("audit", "consistency", newer); r.Code != 1 {
		t.Errorf("consistency with a newer head: %d %s", r.Code, r.Stdout)
	}
}

// TestA09_ExportIsRedacted: without --full nothing that an agent wrote leaves;
// both want a proof and are rows.
func TestA09_ExportIsRedacted(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read")
	said := "said-by-the-agent"
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/document", "query": map[string]any{"q": said}})
	if r := b.RunPlain("audit", "export"); r.Code != 3 || r.Stdout != "" {
		t.Errorf("without a proof: %d %s", r.Code, r.Stdout)
	}
	for _, full := range []bool{false, true} {
		for _, format := range []string{"ndjson", "csv"} {
			args := []string{"audit", "export", "--format", format}
			if full {
				args = append(args, "--full")
			}
			out := b.Must(args...).Stdout
			if strings.Contains(out, said) != full || strings.Contains(out, canary) || !strings.Contains(out, "http:demo.read") {
				t.Errorf("%s, full %v: what was said %v", format, full, strings.Contains(out, said))
			}
			rows := 0
			if format == "csv" {
				table, err := csv.NewReader(strings.NewReader(out)).ReadAll()
				must(t, err)
				rows = len(table) - 1
			} else {
				for _, line := range bytes.Split(bytes.TrimSpace([]byte(out)), []byte("\n")) {
					if !json.Valid(line) {
						t.Fatalf("no JSON: %s", line)
					}
					rows++
				}
			}
			if rows < 9 {
				t.Errorf("%s: %d rows", format, rows)
			}
		}
	}
	exported := 0
	for _, r := range b.Activity() {
		if r.Kind == "ledger.exported" {
			exported++
		}
	}
	if exported != 4 {
		t.Errorf("%d rows tell of exports", exported)
	}
	if r := b.Run("audit", "export", "--format", "xml"); r.Code != 2 {
		t.Errorf("xml: %d", r.Code)
	}
}
