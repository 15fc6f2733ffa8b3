package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// authenticator gives the tab a virtual authenticator that verifies its person.
func (tb *tab) authenticator() webauthn.AuthenticatorID {
	tb.t.Helper()
	var id webauthn.AuthenticatorID
	tb.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return err
		}
		made, err := cdp.Call(ctx, t, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true}})
		if err == nil {
			id = made.AuthenticatorID
		}
		return err
	}))
	return id
}

// verified says whether the authenticator verifies its person from now on.
func (tb *tab) verified(id webauthn.AuthenticatorID, is bool) {
	tb.t.Helper()
	tb.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: id, IsUserVerified: is})
		return err
	}))
}

// enrol adds a passkey on the page, by the passphrase.
func (tb *tab) enrol(s *site, name string) {
	tb.t.Helper()
	tb.view(s, "access", "")
	tb.typeIn("form[data-passkey] [name=name]", name)
	tb.typeIn("form[data-passkey] [name=phrase]", yetttest.Passphrase)
	tb.click("form[data-passkey] [type=submit]")
	tb.wait(`document.querySelector('[data-remove]')`)
}

// TestTheWholeWayByPasskey: a passkey is added by the passphrase, opens the page
// and approves what an agent asked for; the action is done, and the approval is
// checked again from the ledger. A gesture that is cancelled, and one by somebody
// whom the passkey does not verify, give nothing.
func TestTheWholeWayByPasskey(t *testing.T) {
	t.Parallel()
	up := yetttest.StartUpstream(t, canary)
	s := start(t, up.Access(), "demo", canary)
	page := s.open(s.url(""))
	id := page.authenticator()
	page.prove()
	page.enrol(s, "laptop")
	agent := s.Open()
	agent.OpenSession("http:demo.read")
	page.view(s, "waiting", `document.querySelector('[data-once]') && !document.querySelector('[data-once]').disabled`)

	page.verified(id, false)
	page.click("[data-once]")
	page.click(".decide [data-key]")
	page.wait(`document.querySelector('.decide [data-error]').innerText !== ''`)
	if len(s.Pending()) != 1 {
		t.Fatal("a passkey without a verified person decided")
	}
	eval[bool](page, `(navigator.credentials.get = () => Promise.reject(new DOMException('', 'NotAllowedError')), true)`)
	page.click(".decide [data-key]")
	page.wait(`document.querySelector('.decide [data-error]').innerText.includes('cancelled')`)
	if len(s.Pending()) != 1 {
		t.Fatal("a cancelled gesture decided")
	}
	eval[bool](page, `delete navigator.credentials.get`)

	page.verified(id, true)
	page.click(".decide [data-key]")
	agent.Must(wire.MethodSessionWait, agent.Next(map[string]any{"wait_ms": 30_000}), &agent.Session)
	if op := agent.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); op.State != "completed" {
		t.Fatalf("%+v", op)
	}
	if r := s.Must("audit", "verify", "--rows"); !strings.Contains(r.Stdout, "1 act by signature checked again") {
		t.Errorf("audit verify: %s", r.Stdout)
	}
	page.goTo(s.url(""))
	page.click("#view [data-passkey]")
	page.wait(`document.querySelector('#view').dataset.open === 'true'`)
}

// TestAPasskeyAnswersOneDecisionOnly: an answer to the challenge of one decision
// proves no other: not another choice, not other cards, not twice.
func TestAPasskeyAnswersOneDecisionOnly(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	page := s.open(s.url(""))
	page.authenticator()
	page.prove()
	page.enrol(s, "laptop")
	token := page.token()
	one, two := s.Open(), s.Open()
	one.OpenSession("http:billing.read")
	two.OpenSession("http:github.issues")
	cards := s.Pending()
	if len(cards) != 2 {
		t.Fatalf("%d cards", len(cards))
	}
	named := func(i int) []wire.CardNamed {
		return []wire.CardNamed{{ApprovalID: cards[i].ApprovalID, CardDigest: cards[i].CardDigest}}
	}
	gesture := func(tamper string) json.RawMessage {
		a := page.fetch("/challenge", token, map[string]any{"decision": map[string]any{"cards": named(0), "choice": "once"}})
		if a.Status != 200 {
			t.Fatalf("challenge: %d %s", a.Status, a.Body)
		}
		return eval[json.RawMessage](page, `(async () => { const c = `+string(a.Body)+`; const passkey = await import('/passkey.js'); `+tamper+`
			return {nonce: c.nonce, assertion: await passkey.get(c)}; })()`)
	}
	decide := func(what string, i int, choice string, minutes int, g json.RawMessage) {
		t.Helper()
		a := page.fetch("/decide", token, map[string]any{"cards": named(i), "choice": choice, "minutes": minutes, "gesture": g})
		if a.Status == 200 && bytes.Contains(a.Body, []byte(`"done":true`)) {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	// Asking for a challenge gives a page that can do nothing but answer it.
	var asked struct{ Token string }
	if a := page.fetch("/challenge", "", map[string]any{}); json.Unmarshal(a.Body, &asked) != nil || asked.Token == "" {
		t.Fatalf("a challenge before any proof: %d %s", a.Status, a.Body)
	}
	for _, path := range []string{"/view/sessions", "/view/activity", "/view/access", "/view/doctor", "/view/card?id=" + cards[0].ApprovalID} {
		if a := page.fetch(path, asked.Token, nil); a.Status != 401 {
			t.Errorf("%s before the answer: %d %s", path, a.Status, a.Body)
		}
	}
	decide("another card", 1, "once", 0, gesture(""))
	decide("another choice", 0, "until", 60, gesture(""))
	decide("a tampered challenge", 0, "once", 0, gesture(`c.challenge = 'AAAA' + c.challenge.slice(4);`))
	if len(s.Pending()) != 2 {
		t.Fatal("something was decided")
	}
	g := gesture("")
	if a := page.fetch("/decide", token, map[string]any{"cards": named(0), "choice": "once", "gesture": g}); !bytes.Contains(a.Body, []byte(`"done":true`)) {
		t.Fatalf("the decision itself: %d %s", a.Status, a.Body)
	}
	decide("the same answer again", 0, "once", 0, g)
	// A page on another port of localhost gets the same passkey to answer; what it
	// gets says where it was made.
	evil := yetttest.StartUpstreamFunc(t, evilPage)
	challenge := page.fetch("/challenge", token, map[string]any{"decision": map[string]any{"cards": named(1), "choice": "once"}})
	source := eval[string](page, `fetch('/passkey.js').then((r) => r.text())`)
	page.goTo(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1))
	stolen := eval[json.RawMessage](page, `(async () => { const c = `+string(challenge.Body)+`; const passkey = await import('data:text/javascript;base64,' + btoa(unescape(encodeURIComponent(`+quoted(source)+`))));
		try { return {nonce: c.nonce, assertion: await passkey.get(c)}; } catch (e) { return {nonce: c.nonce, failed: String(e)}; } })()`)
	if bytes.Contains(stolen, []byte("failed")) {
		t.Fatalf("the other page got no answer to try: %s", stolen)
	}
	page.goTo(s.url(""))
	if a := page.fetch("/decide", token, map[string]any{"cards": named(1), "choice": "once", "gesture": stolen}); a.Status == 200 && bytes.Contains(a.Body, []byte(`"done":true`)) {
		t.Errorf("an answer from another page: %d %s", a.Status, a.Body)
	}
}

func quoted(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// TestChallengesShutNobodyOut: whoever asks for challenges on and on, and answers
// none, keeps nobody from opening the page.
func TestChallengesShutNobodyOut(t *testing.T) {
	s := start(t, teamAccess)
	page := s.open(s.url(""))
	page.authenticator()
	page.prove()
	page.enrol(s, "laptop")
	other := newTab(t)
	other.goTo(s.url(""))
	worst := eval[int](other, `Promise.all(Array.from({length: 90}, () => fetch('/challenge', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'})
		.then((r) => r.status))).then((all) => all.filter((s) => s === 200).length)`)
	if worst < 64 {
		t.Fatalf("only %d challenges were given: nobody was pressed", worst)
	}
	if page.token() == "" {
		t.Error("the page cannot be opened")
	}
}
