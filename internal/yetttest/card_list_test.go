package yetttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// TestP01_EveryCardIsListedWhole: more cards than a frame of the broker holds
// are listed all the same, each with what it takes to approve it.
func TestP01_EveryCardIsListedWhole(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	flooder := b.Granted("http:demo.each")
	const flood = 40 // of about 62 KiB each
	for i := range flood {
		frame, err := wire.EncodeRequest(int64(1000+i), wire.MethodActionRequest, flooder.Next(map[string]any{"capability": "http:demo.each",
			"action": map[string]any{"method": "POST", "path": fmt.Sprintf("/each/%d", i), "body": strings.Repeat("x", 60_000)}}))
		must(t, err)
		flooder.Write(frame)
	}
	for range flood {
		if r, ok := flooder.Read(); !ok || r.Error != nil {
			t.Fatalf("%v %+v", ok, r.Error)
		}
	}
	listed := b.Must("pending", "--json")
	var cards []wire.Approval
	listed.JSON(t, &cards)
	if len(cards) != flood || len(listed.Stdout) < 2*wire.MaxFrame {
		t.Fatalf("%d cards in %d bytes", len(cards), len(listed.Stdout))
	}
	for n, c := range cards {
		if c.Card == nil || approval.Digest(c.Card) != c.CardDigest || c.SessionID != flooder.Session.SessionID {
			t.Fatalf("card %d of %d: digest %q, session %q, %d bytes", n, len(cards), c.CardDigest, c.SessionID, len(c.Card))
		}
	}
	if text := b.Must("pending").Stdout; !strings.Contains(text, fmt.Sprintf("%d more wait", flood-5)) ||
		!strings.Contains(text, fmt.Sprintf("has %d of these", flood-5)) || !strings.Contains(text, fmt.Sprintf("… and %d more", flood-35)) {
		t.Errorf("the text does not count right:\n%s", text[max(0, len(text)-900):])
	}
	last := cards[flood-1]
	var one wire.Approval
	b.Must("pending", last.ApprovalID, "--json").JSON(t, &one)
	if one.CardDigest != last.CardDigest || !bytes.Equal(one.Card, last.Card) {
		t.Errorf("the last card by its id: %q", one.CardDigest)
	}
	if text := b.Must("pending", last.ApprovalID).Stdout; !strings.Contains(text, last.CardDigest) || strings.Contains(text, cards[0].CardDigest) {
		t.Errorf("the last card by its id:\n%.500s", text)
	}
	if r := b.RunPlain("pending", last.ApprovalID, "--json"); r.Code != 0 || strings.Contains(r.Stdout, last.CardDigest) {
		t.Errorf("without proof: exit %d %.300s", r.Code, r.Stdout)
	}
	plain := b.RunPlain("pending", "--json")
	if err := json.Unmarshal([]byte(plain.Stdout), &cards); err != nil || len(cards) != flood {
		t.Errorf("without proof: %d cards, %v", len(cards), err)
	}
	b.Must("approve", last.ApprovalID, "--digest", last.CardDigest)
	if r := b.Run("pending", last.ApprovalID); r.Code != 1 || !strings.Contains(r.Stderr, "No such card waits") {
		t.Errorf("a card that waits no more: exit %d %s", r.Code, r.Stderr)
	}
}
