package screen

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files of cards anew")

// goldenCards are the cards that real processes got from a real broker; how
// each of them came about stands in internal/yetttest.
const goldenCards = "../yetttest/testdata/cards"

// TestD5_GoldenCardsOnATerminal: what a person sees, in 80 columns.
func TestD5_GoldenCardsOnATerminal(t *testing.T) {
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.UTC
	files, err := filepath.Glob(filepath.Join(goldenCards, "*.json"))
	if err != nil || len(files) < 14 {
		t.Fatalf("%d golden cards, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			got := terminalText(t, file)
			golden := strings.TrimSuffix(file, ".json") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the card is\n%s\nwant\n%s", got, want)
			}
			order := []string{"QUAIL ORCHID", "A YES GIVES", "ESTABLISHED BY THE SYSTEM", "CLAIMED BY THE AGENT", "digest"}
			if strings.HasPrefix(name, "action-") {
				order = []string{"QUAIL ORCHID", "A YES GIVES", "THE ACTION", "ESTABLISHED BY THE SYSTEM", "CLAIMED BY THE AGENT", "digest"}
			}
			at := 0
			for _, part := range order {
				i := strings.Index(got[at:], part)
				if i < 0 {
					t.Fatalf("%s does not stand where it should:\n%s", part, got)
				}
				at += i
			}
			for _, line := range strings.Split(got, "\n") {
				if width := widthOfText(line); width > usualWidth {
					t.Errorf("%d columns: %s", width, line)
				}
			}
		})
	}
}

func widthOfText(line string) (width int) {
	for _, r := range line {
		width += columns(r)
	}
	return width
}

func terminalText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var card bytes.Buffer
	if err := json.Compact(&card, text); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	p := wire.Approval{ApprovalID: "a_1", Asked: 1, Card: card.Bytes(), CardDigest: approval.Digest(card.Bytes())}
	if _, err := Card(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
