package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/action"
)

// TestP04_WhatIsSentIsShown: what makes an action harmful stands on its card,
// however much that is harmless comes before it.
func TestP04_WhatIsSentIsShown(t *testing.T) {
	post := func(body string) action.Request {
		return action.Request{Capability: "http:a.b", HTTP: &action.HTTP{Method: "POST", Path: "/v1/x", Body: []byte(body)}}
	}
	run := func(command, stdin string) action.Request {
		return action.Request{Capability: "ssh:a.b", SSH: &action.SSH{Command: command, Stdin: []byte(stdin)}}
	}
	const evil = "delete_everything"
	for name, r := range map[string]action.Request{
		"a body with spaces":      post(`{"title":"ok",` + strings.Repeat(" ", 20_000) + `"` + evil + `":1}`),
		"a body with many spaces": post(`{"title":"ok",` + strings.Repeat(" ", 900_000) + `"` + evil + `":1}`),
		"input with spaces":       run("sh -s", "uptime\n#"+strings.Repeat(" ", 16_380)+"\n"+evil),
		"a long command":          run("echo "+strings.Repeat("a", 60_000)+"; "+evil, ""),
		"a long body":             post(strings.Repeat("ä", 200_000) + evil),
		"bytes":                   post(strings.Repeat("\xff", 100_000) + evil),
		"controls":                run("sh -s", strings.Repeat("\x01", 60_000)+"\n"+evil),
	} {
		c := Card{Request: NewRequest("op", r)}
		doc := mustWrite(t, c)
		if len(doc) > capDocument {
			t.Errorf("%s: the document has %d bytes", name, len(doc))
		}
		got := readBack(t, doc).Request
		if !strings.Contains(got.Body+got.Stdin+got.Command+got.End, evil) || bytes.Contains(doc, []byte(`\+{`)) {
			t.Errorf("%s: the harmful part is not shown, or something is cut", name)
		}
		if (got.NotShown > 0) != (c.Request.Warning() != "") || (got.NotShown > 0) != (got.SHA256 != "") {
			t.Errorf("%s: %d bytes are not shown; %q, %q", name, got.NotShown, c.Request.Warning(), got.SHA256)
		}
		// What spaces make long is shown whole: a run of them is one mark.
		if (got.NotShown > 0) != (name == "a long body" || name == "bytes" || name == "controls") {
			t.Errorf("%s: %d bytes are not shown", name, got.NotShown)
		}
	}
}

// TestP04_WhatIsNotShownIsCounted: the two ends and what lies between are all of
// it, no character is torn, and the digest is of the whole.
func TestP04_WhatIsNotShownIsCounted(t *testing.T) {
	for _, r := range []string{"a", "ä", "€", "𝄞"} {
		for skip := range 4 {
			content := []byte(strings.Repeat("x", skip) + strings.Repeat(r, 100_000))
			v := NewRequest("op", action.Request{HTTP: &action.HTTP{Method: "GET", Body: content}})
			if len(v.Body)+v.NotShown+len(v.End) != len(content) || v.BodySize != len(content) {
				t.Errorf("%q: %d, %d and %d of %d bytes", r, len(v.Body), v.NotShown, len(v.End), len(content))
			}
			if !utf8.ValidString(v.Body) || !utf8.ValidString(v.End) || len(v.End) < endText-utf8.UTFMax {
				t.Errorf("%q: torn: %q … %q", r, v.Body[len(v.Body)-4:], v.End[:4])
			}
			if sum := sha256.Sum256(content); v.SHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("%q: the digest is %s", r, v.SHA256)
			}
			if Clickable(Card{Request: v, Granting: Granting{Capabilities: []Capability{{Methods: []string{"GET"}}}}}) {
				t.Error("a click is enough for what nobody can see")
			}
		}
	}
}

// TestP04_TooLongIsNotAsked: there is no card for what cannot be shown.
func TestP04_TooLongIsNotAsked(t *testing.T) {
	long := strings.Repeat("x", wholeText+1)
	for name, r := range map[string]action.Request{
		"command":  {SSH: &action.SSH{Command: long}},
		"path":     {HTTP: &action.HTTP{Method: "GET", Path: "/" + long}},
		"query":    {HTTP: &action.HTTP{Method: "GET", Path: "/", Query: long}},
		"headers":  {HTTP: &action.HTTP{Method: "GET", Path: "/", Headers: []action.Header{{Name: "X-A", Value: long}}}},
		"variable": {SSH: &action.SSH{Command: "env", Env: []action.Variable{{Name: "A", Value: long}}}},
		"copy":     {Copy: &action.Copy{Direction: "up", Remote: long}},
	} {
		if _, err := write(Card{Request: NewRequest("op", r)}); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
