package console_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/yett-broker/yett/internal/yetttest"
)

// TestAValueByPasskey: a passkey stores the value that was typed, for the
// credential that was chosen and for no other; before a proof nobody is told
// which passkeys there are.
func TestAValueByPasskey(t *testing.T) {
	t.Parallel()
	up := yetttest.StartUpstream(t, canary)
	s := start(t, up.Access()+"\n[credential.other]\nkind = \"bearer\"\norigin = \"https://other.example\"\n")
	page := s.open(s.url(""))
	page.authenticator()
	page.prove()
	page.enrol(s, "laptop")
	token := page.token()
	gesture := func(name string) json.RawMessage {
		a := page.fetch("/challenge", token, map[string]any{"value": map[string]any{"name": name, "rotate": false}})
		if a.Status != 200 {
			t.Fatalf("challenge: %d %s", a.Status, a.Body)
		}
		return eval[json.RawMessage](page, `(async () => { const c = `+string(a.Body)+`, passkey = await import('/passkey.js'); return {nonce: c.nonce, assertion: await passkey.get(c)}; })()`)
	}
	store := func(name string, gesture any) answer {
		return page.fetch("/secret", token, map[string]any{"for": map[string]any{"name": name, "rotate": false}, "value": []byte(canary), "gesture": gesture})
	}
	for what, a := range map[string]answer{
		"an answer about another credential": store("demo", gesture("other")),
		"a click":                            store("demo", map[string]any{"click": true}),
		"nothing":                            store("demo", map[string]any{}),
	} {
		if a.Status == 200 {
			t.Errorf("%s stored a value", what)
		}
	}
	for _, request := range []string{"/passkeys", "/challenge"} {
		var body any
		if request == "/challenge" {
			body = map[string]any{}
		}
		a := page.fetch(request, "", body)
		var told struct {
			IDs []string `json:"credential_ids"`
		}
		if json.Unmarshal(a.Body, &told); a.Status != 200 || len(told.IDs) != 0 || bytes.Contains(a.Body, []byte("laptop")) {
			t.Errorf("before a proof %s tells %s", request, a.Body)
		}
	}

	page.view(s, "access", `document.querySelector('[data-secret] [data-key]').offsetParent`)
	page.do(chromedp.SetValue("[data-secret] [name=name]", "demo"))
	page.typeIn("[data-secret] textarea", canary)
	page.click("[data-secret] [data-key]")
	page.wait(`document.querySelector('#told').innerText.includes('stored')`)
	if op := s.Granted("http:demo.read").MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); op.State != "completed" {
		t.Fatalf("%+v", op)
	}
	if auth := up.Authorizations(); len(auth) != 1 || auth[0] != "Bearer "+canary {
		t.Error("the value that was stored is another one")
	}
	for _, r := range s.Activity() {
		if raw, _ := json.Marshal(r); strings.Contains(string(raw), canary) {
			t.Errorf("row %d has the value", r.N)
		}
	}
	if r := s.Must("audit", "verify", "--rows"); !strings.Contains(r.Stdout, "1 act by") {
		t.Errorf("audit verify: %s", r.Stdout)
	}
}
