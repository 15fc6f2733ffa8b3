package console_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// ledgerAccess is an access file with what a team would have in it.
const teamAccess = `
[credential.github]
kind   = "bearer"
origin = "https://api.github.com"

[credential.billing]
kind   = "bearer"
origin = "https://api.billing.example"

[credential.deploy-key]
kind = "ssh-key"

[capability."http:github.issues"]
credential = "github"
methods    = ["GET", "POST", "PATCH"]
paths      = ["/repos/acme/*/issues", "/repos/acme/*/issues/**"]
budget     = "300/h"

[capability."http:billing.read"]
credential = "billing"
methods    = ["GET", "HEAD"]
paths      = ["/v1/invoices", "/v1/invoices/**"]
query      = ["page", "status"]
budget     = "120/h"

[capability."http:billing.refund"]
credential = "billing"
methods    = ["POST"]
paths      = ["/v1/refunds"]
confirm    = "each"

[host.web1]
address   = "web1.example.net:22"
user      = "deploy"
key       = "deploy-key"
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxvRuTGmUHcvEXbgpR7Wg7x3m7XyMmmaDBcBprQQkaY"]

[capability."ssh:web1.status"]
host     = "web1"
commands = ["uptime", "systemctl status *"]
`

// hasNoFault runs the checker of accessibility over what is shown.
func (tb *tab) hasNoFault(what string) {
	tb.t.Helper()
	if !eval[bool](tb, `'axe' in window`) {
		axe, err := os.ReadFile(filepath.Join(filepath.Dir(yetttest.Bin("axe.js")), "axe.js"))
		if err != nil {
			tb.t.Fatal(err)
		}
		eval[bool](tb, string(axe)+"\n;'axe' in window")
	}
	found := eval[[]string](tb, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) =>
		v.id + ' (' + v.impact + '): ' + v.help + '\n' + v.nodes.slice(0, 3).map((n) => '    ' + n.html + '\n    ' + n.failureSummary).join('\n')))`)
	for _, v := range found {
		tb.t.Errorf("%s: %s", what, v)
	}
	if wide := eval[int](tb, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		tb.t.Errorf("%s: %d pixels lie off the screen", what, wide)
	}
}

func (tb *tab) scheme(name string) {
	tb.t.Helper()
	tb.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	}))
}

// look checks what is shown in both schemes and on a narrow screen, and keeps
// pictures where they are wanted.
func (tb *tab) look(name string) {
	tb.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		tb.scheme(scheme)
		tb.hasNoFault(name + ", " + scheme)
		tb.picture(name + "-" + scheme)
	}
	tb.scheme("light")
	tb.do(chromedp.EmulateViewport(320, 640))
	tb.hasNoFault(name + ", 320 pixels wide")
	if cut := eval[int](tb, `((n) => n.scrollWidth - n.clientWidth)(document.querySelector('nav'))`); cut > 0 {
		tb.t.Errorf("%s: %d pixels of the tabs are cut off", name, cut)
	}
	tb.picture(name + "-narrow")
	tb.do(chromedp.EmulateViewport(1280, 860))
}

func (tb *tab) picture(name string) {
	tb.t.Helper()
	if *pictures == "" {
		return
	}
	tb.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		png, err := chromedp.CaptureScreenshot()(ctx, t)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644)
	}))
}

func (tb *tab) view(s *site, name, ready string) {
	tb.t.Helper()
	tb.click(fmt.Sprintf(`nav a[href="#%s"]`, name))
	tb.wait(fmt.Sprintf(`document.querySelector('[data-view=%s]')`, name))
	if ready != "" {
		tb.wait(ready)
	}
}

// oneActionIsAllowedOnce: a card of one action offers no time, alone or among
// others. A page that sends one all the same is told so in a sentence, and the
// card can still be decided.
func (tb *tab) oneActionIsAllowedOnce() {
	tb.t.Helper()
	offered := `!document.querySelector('.decide [data-for]').hidden`
	if eval[bool](tb, offered) {
		tb.t.Error("one action is offered for a time")
	}
	eval[bool](tb, `(document.querySelector('.decide [data-for]').hidden = false, true)`)
	tb.approveFor("15")
	tb.wait(`document.querySelector('.decide [data-error]').innerText !== ''`)
	tag := tb.text(".card .tag")
	if why := tb.text(".decide [data-error]"); why != tag+" was not allowed. One action is approved once, not for a time." {
		tb.t.Errorf("a refused decision says %q", why)
	}
	tb.wait(`document.querySelector('.decide [data-once]').offsetParent && !document.querySelector('.decide [data-once]').disabled`)
	if eval[int](tb, `document.querySelectorAll('.gone').length`) != 0 || tb.text("#told") != "" {
		tb.t.Errorf("a card that was not decided is marked as settled; the page says %q", tb.text("#told"))
	}
	tb.click(`.cards li:nth-child(1) input`)
	tb.click(`.cards li:nth-child(2) input`)
	tb.wait(`document.querySelectorAll('.card').length === 2 && document.querySelectorAll('.decide').length === 1`)
	if eval[bool](tb, offered) {
		tb.t.Error("cards with one action among them are offered for a time")
	}
}

// TestEveryView: everything that the console shows can be used with a keyboard
// and a screen reader, in light and dark, from 320 pixels on; no value of a
// credential is anywhere.
func TestEveryView(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess, "github", canary, "billing", canary)
	claude := filepath.Join(filepath.Dir(s.Home), "claude")
	if out, err := exec.Command("cp", os.Args[0], claude).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := s.agentProgram(claude, "http:github.issues", "Look through the open issues")
	s.Approve(first, "--for", "1h")
	worker := s.Granted("http:github.issues", "http:billing.read", "http:billing.refund")
	worker.Call(wire.MethodActionRequest, worker.Next(map[string]any{"capability": "http:github.issues", "action": map[string]any{"method": "GET", "path": "/user"}, "wait_ms": 1000}))
	worker.Call(wire.MethodActionRequest, worker.Next(map[string]any{"capability": "http:billing.read", "action": map[string]any{"method": "GET", "path": "/v1/invoices"}, "wait_ms": 0}))
	s.agentProgram(claude, "http:github.issues,ssh:web1.status", "Triage the open issues and look whether web1 is up")
	refund := worker.Call(wire.MethodActionRequest, worker.Next(map[string]any{"capability": "http:billing.refund", "wait_ms": 0, "action": map[string]any{
		"method": "POST", "path": "/v1/refunds", "headers": map[string]string{"Content-Type": "application/json"}, "body": `{"invoice":"in_0042","amount":1900,"reason":"duplicate"}`}}))
	if refund.Error != nil {
		t.Fatal(refund.Error.Message)
	}
	page := s.open(s.url(""))
	page.wait(`document.querySelector('.peek li')`)
	page.look("gate")
	if eval[bool](page, `!!document.querySelector('#view [data-passkey]').offsetParent`) {
		t.Error("a passkey is asked for where there is none")
	}
	page.prove()
	page.wait(`document.querySelectorAll('.cards li').length === 2 && document.querySelector('.card')`)
	page.wait(`!document.querySelector('[data-once]').disabled`)
	page.look("waiting")
	page.click(`.cards li:nth-child(2) [data-show]`)
	page.wait(`document.querySelector('.card h2').innerText.includes('one action') && !document.querySelector('[data-once]').disabled`)
	page.look("action")
	page.click("[data-once]")
	page.look("proof")
	page.click("[data-back]")
	page.oneActionIsAllowedOnce()
	if waits := s.Pending(); len(waits) != 2 {
		t.Fatalf("%d cards wait after a decision that was refused", len(waits))
	}
	page.view(s, "sessions", "")
	page.look("sessions")
	page.view(s, "activity", `document.querySelector('.time li')`)
	page.look("activity")
	page.click(`a[href^="#operation/"]`)
	page.wait(`document.querySelector('[data-view=operation]')`)
	if sent := page.text("main"); !strings.Contains(sent, `{"invoice":"in_0042","amount":1900,"reason":"duplicate"}`) {
		t.Errorf("what the operation sends does not stand there:\n%s", sent)
	}
	page.look("operation")
	page.view(s, "access", "")
	page.look("access")
	page.view(s, "review", "")
	page.look("review")
	page.view(s, "doctor", "")
	page.look("doctor")
	if found := page.text("main"); !strings.Contains(found, "network") || !strings.Contains(found, "the console") {
		t.Errorf("what listens is not said:\n%s", found)
	}
	if all := eval[string](page, `document.documentElement.outerHTML`); strings.Contains(all, canary) {
		t.Error("a value stands on the page")
	}
}
