package demo_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/demo"
)

func TestCanariesAreFoundInEverySpelling(t *testing.T) {
	const secret = "demo_4f1d2c7a9b/+?~"
	var c demo.Canaries
	c.Plant("the token", []byte(secret))
	inJSON, _ := json.Marshal(map[string]any{"value": []byte("Bearer " + secret)})
	for _, text := range []string{
		secret,
		"x" + secret + "y",
		hex.EncodeToString([]byte(secret)),
		strings.ToUpper(hex.EncodeToString([]byte("a" + secret))),
		string(inJSON),
	} {
		if len(c.In([]byte(text))) == 0 {
			t.Errorf("not found in %s", text)
		}
	}
	for before := range 5 {
		for after := range 5 {
			around := []byte(strings.Repeat("<", before) + secret + strings.Repeat(">", after))
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
				if found := c.In([]byte(e.EncodeToString(around))); len(found) != 1 || found[0] != "the token in base64" {
					t.Errorf("%d before, %d after: found %v", before, after, found)
				}
			}
		}
	}
}

func TestCanariesAreNotFoundWhereTheyAreNot(t *testing.T) {
	var c demo.Canaries
	c.Plant("the token", []byte("demo_4f1d2c7a9b"))
	if found := c.In([]byte(strings.Repeat("demo_4f1d2c7a9a ZGVtb180ZjFkMmM3YTlh ", 100))); found != nil {
		t.Errorf("found %v", found)
	}
}

// Every line of a planted key is known, but for what all keys have in common.
func TestCanariesKnowAKeyByAnyLine(t *testing.T) {
	mine, other := startBuiltin(t), startBuiltin(t)
	var c demo.Canaries
	if err := c.PlantKey("the key", mine.ClientKey); err != nil {
		t.Fatal(err)
	}
	if found := c.In(other.ClientKey); found != nil {
		t.Errorf("another key: found %v", found)
	}
	known := 0
	for line := range strings.Lines(string(mine.ClientKey)) {
		if c.In([]byte(line)) != nil {
			known++
			if c.In([]byte(base64.StdEncoding.EncodeToString([]byte("-\n"+line)))) == nil {
				t.Errorf("line not found in base64: %s", line)
			}
		}
	}
	if known < 3 {
		t.Errorf("only %d lines are known of\n%s", known, mine.ClientKey)
	}
	if err := c.PlantKey("no key", []byte("nothing")); err == nil {
		t.Error("what is no key was planted as one")
	}
}

func ExampleCanaries() {
	var c demo.Canaries
	c.Plant("the token", []byte("a-planted-token"))
	fmt.Println(c.In([]byte(`{"authorization":"Bearer a-planted-token"}`)))
	// Output: [the token]
}
