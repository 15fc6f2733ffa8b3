package screen

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
)

// TestP04_WhatIsNotShownIsSaid: above all else of a card, and where it is missing.
func TestP04_WhatIsNotShownIsSaid(t *testing.T) {
	body := strings.Repeat("x", 200_000) + "the end"
	for name, r := range map[string]action.Request{
		"a body":   {Capability: "http:a.b", HTTP: &action.HTTP{Method: "POST", Path: "/x", Body: []byte(body)}},
		"an input": {Capability: "ssh:a.b", SSH: &action.SSH{Command: "sh -s", Stdin: []byte(body)}},
	} {
		var out bytes.Buffer
		c := approval.Card{Request: approval.NewRequest("op", r)}
		printNotes(&out, c)
		printRequest(&out, c.Request)
		for _, want := range []string{"  NOTE      195911 bytes of what is sent are NOT SHOWN", "  NOT SHOWN 195911 bytes; the SHA-256", c.Request.SHA256, "the end\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is missing", name, want)
			}
		}
	}
}
