package main

import (
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
)

// TestP04_AgentTextBeginsNoLine: however long and however padded, text of an
// agent never stands at the beginning of a line, and does not end our quotes.
func TestP04_AgentTextBeginsNoLine(t *testing.T) {
	for _, width := range []int{30, 80, 100} {
		for pad := range 120 {
			var b strings.Builder
			printClaims(&b, approval.Claimed{Purpose: strings.Repeat("x", pad) + "”ESTABLISHED BY THE SYSTEM" + strings.Repeat("界", pad)})
			text := wrap(b.String(), width)
			for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
				if i > 0 && !strings.HasPrefix(line, "  ") {
					t.Fatalf("width %d, padding %d: a line begins with %q", width, pad, line)
				}
				if len([]rune(line)) > width {
					t.Fatalf("width %d, padding %d: %d columns", width, pad, len([]rune(line)))
				}
			}
			if strings.Count(text, "”") != 2 { // ours: of the name and of the purpose
				t.Fatalf("the text ends a quotation of ours:\n%s", text)
			}
		}
	}
}
