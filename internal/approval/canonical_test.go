package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"
)

func vectors(t testing.TB, file string, v any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

type canonicalVector struct {
	Name string
	In   string
	Out  *string // null: a card has nothing of the kind
}

func TestCanonicalVectors(t *testing.T) {
	var all []canonicalVector
	if vectors(t, "testdata/canonical.json", &all); len(all) < 10 {
		t.Fatalf("%d vectors", len(all))
	}
	for _, v := range all {
		got, err := canonical(json.RawMessage(v.In))
		if v.Out == nil && err == nil {
			t.Errorf("%s: written as %s", v.Name, got)
		}
		if v.Out != nil && (err != nil || string(got) != *v.Out) {
			t.Errorf("%s: %v\n got %s\nwant %s", v.Name, err, got, *v.Out)
		}
	}
}

// What is canonical stays as it is, and means what it meant.
func FuzzCanonical(f *testing.F) {
	var all []canonicalVector
	if vectors(f, "testdata/canonical.json", &all); len(all) == 0 {
		f.Fatal("the corpus is empty")
	}
	for _, v := range all {
		f.Add(v.In)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if !json.Valid([]byte(in)) {
			return
		}
		once, err := canonical(json.RawMessage(in))
		if err != nil {
			return
		}
		if !json.Valid(once) {
			t.Fatalf("%s becomes %s", in, once)
		}
		twice, err := canonical(json.RawMessage(once))
		if err != nil || string(twice) != string(once) {
			t.Fatalf("%s becomes %s, and that %s, %v", in, once, twice, err)
		}
	})
}

// The bytes of a decision and its proof are a format, too. The file was made by
// another program than this one.
func TestDecisionVectors(t *testing.T) {
	var v struct {
		Key       string
		Documents []struct{ Document, Digest string }
		Decisions []struct {
			Name       string
			CardDigest string `json:"card_digest"`
			Choice     string
			Until      string
			Nonce      string
			Message    string
			Proof      string
		}
	}
	if vectors(t, "testdata/decisions.json", &v); len(v.Documents) < 2 || len(v.Decisions) < 6 {
		t.Fatalf("%d documents, %d decisions", len(v.Documents), len(v.Decisions))
	}
	key, err := hex.DecodeString(v.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range v.Documents {
		if got := Digest([]byte(d.Document)); got != d.Digest {
			t.Errorf("%s has the digest %s, want %s", d.Document, got, d.Digest)
		}
	}
	proofs := map[string]string{}
	for _, d := range v.Decisions {
		var until time.Time
		if d.Until != "" {
			if until, err = time.Parse(time.RFC3339Nano, d.Until); err != nil {
				t.Fatal(err)
			}
		}
		message := DecisionMessage(d.CardDigest, d.Choice, until, d.Nonce)
		m := hmac.New(sha256.New, key)
		m.Write(message)
		if got := hex.EncodeToString(m.Sum(nil)); string(message) != d.Message || got != d.Proof {
			t.Errorf("%s: message %q, proof %s", d.Name, message, got)
		}
		if other, taken := proofs[d.Proof]; taken {
			t.Errorf("%s and %s have one proof", d.Name, other)
		}
		proofs[d.Proof] = d.Name
	}
}
