package console_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// TestABrowserThatIsDrivenDecidesNoUnsafe: whoever drives the browser over its
// debugging port has the page's token and can click. Where a proof let clicks
// decide, that is enough for what only reads, and for nothing else; where none
// did, for nothing at all.
func TestABrowserThatIsDrivenDecidesNoUnsafe(t *testing.T) {
	s := start(t, yetttest.StartUpstream(t, canary).Access())
	page := s.open(s.url(""))
	token, other := page.token(), page.token()
	cards := map[string]wire.CardNamed{}
	for _, capability := range []string{"http:demo.read", "http:demo.write", "http:demo.each"} {
		s.Open().OpenSession(capability)
	}
	for _, c := range s.Pending() {
		cards[c.Capabilities[0]] = wire.CardNamed{ApprovalID: c.ApprovalID, CardDigest: c.CardDigest}
	}
	click := func(token string, capabilities ...string) answer {
		t.Helper()
		var all []wire.CardNamed
		for _, c := range capabilities {
			all = append(all, cards[c])
		}
		return page.fetch("/decide", token, map[string]any{"cards": all, "choice": "once", "gesture": map[string]any{"click": true}})
	}
	refused := func(what string, a answer) {
		t.Helper()
		if a.Status != 401 || !bytes.Contains(a.Body, []byte(wire.CodeProofRequired)) {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	refused("a click before any proof for clicks", click(token, "http:demo.read"))
	if a := page.fetch("/clicks", token, map[string]any{"click": true}); a.Status == 200 {
		t.Errorf("clicks opened by a click: %s", a.Body)
	}
	if a := page.fetch("/clicks", token, map[string]any{"phrase": []byte("a wrong passphrase")}); a.Status == 200 {
		t.Errorf("clicks opened by a wrong passphrase: %s", a.Body)
	}
	if a := page.fetch("/clicks", token, map[string]any{"phrase": []byte(yetttest.Passphrase)}); a.Status != 200 || string(a.Body) != `{"minutes":15}` {
		t.Fatalf("clicks: %d %s", a.Status, a.Body)
	}
	refused("another page", click(other, "http:demo.read"))
	refused("an unsafe method", click(token, "http:demo.write"))
	refused("an unsafe method among others", click(token, "http:demo.each"))
	refused("what reads, together with what writes", click(token, "http:demo.read", "http:demo.write"))
	swapped := cards["http:demo.read"]
	swapped.CardDigest = cards["http:demo.write"].CardDigest
	if a := page.fetch("/decide", token, map[string]any{"cards": []wire.CardNamed{swapped}, "choice": "once", "gesture": map[string]any{"click": true}}); bytes.Contains(a.Body, []byte(`"done":true`)) {
		t.Errorf("a card that was not shown: %s", a.Body)
	}
	if left := s.Pending(); len(left) != 3 {
		t.Fatalf("%d cards wait", len(left))
	}
	if a := click(token, "http:demo.read"); !bytes.Contains(a.Body, []byte(`"done":true`)) {
		t.Errorf("what only reads: %d %s", a.Status, a.Body)
	}
	s.Open().OpenSession("http:demo.read")
	cards["http:demo.read"] = wire.CardNamed{ApprovalID: s.Pending()[2].ApprovalID, CardDigest: s.Pending()[2].CardDigest}
	page.fetch("/lock", token, map[string]any{"pause": true})
	s.Unlock()
	token = page.token()
	refused("after a lock", click(token, "http:demo.read"))
	by, refusals := "", 0
	for _, r := range s.Activity() {
		if r.Kind == "refused" && bytes.Contains(r.Request, []byte(wire.MethodApproveAll)) {
			refusals++
		}
		var v struct{ Proof approval.Proven }
		if r.Kind == "decision" && json.Unmarshal(r.Verified, &v) == nil {
			by += v.Proof.By
		}
	}
	if refusals != 6 {
		t.Errorf("%d rows tell of clicks that were refused", refusals)
	}
	if by != approval.ByClick {
		t.Errorf("the rows of the decisions say %q", by)
	}
}

// TestClicksOnThePage: a person lets clicks decide by the passphrase; then one
// click allows what only reads, and a card that writes asks as before.
func TestClicksOnThePage(t *testing.T) {
	s := start(t, yetttest.StartUpstream(t, canary).Access())
	page := s.openProven()
	page.click("details:has([data-clicks]) summary")
	page.typeIn("[data-clicks] [name=phrase]", yetttest.Passphrase)
	page.click("[data-clicks] [type=submit]")
	page.wait(`document.querySelector('#view').innerText.includes('a click decides here')`)
	agent := s.Open()
	agent.OpenSession("http:demo.read")
	page.wait(`document.querySelector('.card')`)
	page.click("[data-once]")
	agent.Must(wire.MethodSessionWait, agent.Next(map[string]any{"wait_ms": 30_000}), &agent.Session)
	if len(agent.Session.Capabilities) != 1 {
		t.Fatalf("not granted: %+v", agent.Session)
	}
	page.wait(`document.querySelector('.cards li.gone')`)
	writer := s.Open()
	writer.OpenSession("http:demo.write")
	page.click(`.cards li:not(.gone) [data-show]`)
	page.wait(`document.querySelector('.card[data-click=false]')`)
	page.click("[data-once]")
	page.wait(`document.querySelector('.decide .second [name=phrase]').offsetParent`)
	if len(s.Pending()) != 1 {
		t.Error("one click decided about a card that writes")
	}
}
