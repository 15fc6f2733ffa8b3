package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// TestP01_AListOfManyCardsCanBeRead: the first cards in full, a line for some
// others, a number for the rest, and how to be rid of a flood.
func TestP01_AListOfManyCardsCanBeRead(t *testing.T) {
	card, err := json.Marshal(approval.Card{Tag: "quail orchid", ApprovalID: "a_1", Request: &approval.Request{Body: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	var items []wire.Approval
	for i := range 150 {
		items = append(items, wire.Approval{ApprovalID: fmt.Sprint("a_", i), SessionID: []string{"s_flood", "s_other"}[min(i%20, 1)^1], Card: card, Asked: 1})
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := &app{stdout: &output{File: f}}
	if err := a.printPending(items); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	out := string(raw)
	if n := strings.Count(out, "QUAIL ORCHID"); n != cardsShown {
		t.Errorf("%d cards are shown in full", n)
	}
	for _, want := range []string{"145 more wait", "yett pending ID", "… and 115 more; every one of them: yett pending --json", "yett revoke s_flood"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "\n"); n > 200 {
		t.Errorf("%d lines", n)
	}
}
