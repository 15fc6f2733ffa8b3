package screen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestD5_CardsOfHostsOnATerminal: what a person sees of released hosts. make
// hosts gets their cards from a real broker.
func TestD5_CardsOfHostsOnATerminal(t *testing.T) {
	files, err := filepath.Glob("../../hosts/testdata/*.card.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d cards of hosts, %v", len(files), err)
	}
	for _, file := range files {
		got, golden := terminalText(t, file), strings.TrimSuffix(file, ".json")+".txt"
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
			t.Errorf("%s (make hosts UPDATE=1 writes it):\n%s\nwant\n%s", golden, got, want)
		}
	}
}
