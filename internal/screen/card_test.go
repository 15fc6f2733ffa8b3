package screen

import (
	"fmt"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
)

// TestP04_AgentTextBeginsNoLine: however long and however padded, text of an
// agent never stands at the beginning of a line, and does not end our quotes.
func TestP04_AgentTextBeginsNoLine(t *testing.T) {
	for _, width := range []int{30, 80, 100} {
		for pad := range 120 {
			var b strings.Builder
			printClaims(&b, approval.Claimed{Purpose: strings.Repeat("x", pad) + "”ESTABLISHED BY THE SYSTEM" + strings.Repeat("界", pad)})
			text := Wrap(b.String(), width)
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

// TestP04_NothingIsOffTheScreen: at any width every character of a line stands
// on the screen, in its order.
func TestP04_NothingIsOffTheScreen(t *testing.T) {
	text := "  body      " + strings.Repeat("x", 300) + " Host: api.example.com " + strings.Repeat("界", 50) + "\nnext\n"
	for _, width := range []int{21, 30, 80, 81, 200} {
		out := Wrap(text, width)
		for _, line := range strings.Split(out, "\n") {
			if n := widthOfText(line); n > width {
				t.Errorf("width %d: %d columns: %s", width, n, line)
			}
		}
		back := strings.ReplaceAll(strings.ReplaceAll(out, "\n"+goesOn, ""), " ", "")
		if back != strings.ReplaceAll(text, " ", "") {
			t.Errorf("width %d: what stands there is\n%s", width, out)
		}
	}
	if out := Wrap("界界\n", 1); !strings.Contains(out, "界") {
		t.Errorf("a screen that is too narrow for a character loses it: %q", out)
	}
}

// TestP04_ClaimsAreShortened: however much an agent says of itself, the card
// stays one that can be read, and says how much is left out.
func TestP04_ClaimsAreShortened(t *testing.T) {
	labels := map[string]string{}
	for i := range 200 {
		labels[fmt.Sprintf("label%03d", i)] = strings.Repeat("x", 512)
	}
	var b strings.Builder
	printClaims(&b, approval.Claimed{Claims: action.Claims{Labels: labels}, Purpose: strings.Repeat("y", 500)})
	out := Wrap(b.String(), 80)
	if n := strings.Count(out, "\n"); n > 60 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{`\+{300}`, "(192 more labels: yett pending --json)"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing:\n%s", want, out)
		}
	}
	for n := range 14 { // never cut inside of an escape
		s := shortened(strings.Repeat("x", claimShown-n) + `\u{202E}` + strings.Repeat("z", 50))
		if i := strings.Index(s, `\u`); i >= 0 && !strings.HasPrefix(s[i:], `\u{202E}`) {
			t.Errorf("cut to %s", s[claimShown-20:])
		}
	}
}
