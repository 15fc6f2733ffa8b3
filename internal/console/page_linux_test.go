package console_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// TestP05_KeysThatWereMeantForSomethingElse: a person types elsewhere on the page
// when a card comes. Whatever arrives then approves nothing: no yes has the
// focus, none can be pressed in the first second, and a yes takes a proof.
func TestP05_KeysThatWereMeantForSomethingElse(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	page := s.openProven()
	agent := s.Open()
	agent.OpenSession("http:github.issues")
	page.wait(`document.querySelector('.decide')`)
	if early := eval[bool](page, `[...document.querySelectorAll('[data-yes]')].every((b) => b.disabled)`); !early {
		t.Error("a yes can be pressed as soon as the card stands there")
	}
	if at := eval[string](page, `document.activeElement.tagName`); at == "BUTTON" || at == "INPUT" {
		t.Errorf("the card took the focus: %s", at)
	}
	page.keys("yes y \r \r\r y\r")
	page.wait(`!document.querySelector('[data-once]').disabled`)
	// The first press of a tired hand: Enter on the yes while keys still arrive.
	eval[bool](page, `document.querySelector('[data-once]').focus(), true`)
	page.keys("y\r")
	if !eval[bool](page, `document.querySelector('.second').hidden`) {
		t.Error("a key that came with others counts as a yes")
	}
	page.do(chromedp.Sleep(400*time.Millisecond), chromedp.KeyEvent("\r")) // now it is meant: it asks for the proof
	page.wait(`!document.querySelector('.second').hidden`)
	page.keys("\r\r y\r")
	page.do(chromedp.Sleep(300 * time.Millisecond))
	if waits := s.Pending(); len(waits) != 1 {
		t.Fatalf("%d cards wait", len(waits))
	}
	if why := eval[string](page, `document.activeElement.name`); why != "phrase" {
		t.Errorf("the focus is on %q", why)
	}
}

// TestP01_TwoHundredWaitingCards: however many wait, the first can be read and
// decided, and several are decided by one gesture over all of them.
func TestP01_TwoHundredWaitingCards(t *testing.T) {
	t.Parallel()
	var access strings.Builder
	access.WriteString("[credential.api]\nkind = \"bearer\"\norigin = \"https://api.example\"\n")
	names := make([]string, 7) // a hundred sets of them
	for i := range names {
		names[i] = fmt.Sprintf("http:api.part%d", i)
		fmt.Fprintf(&access, "[capability.%q]\ncredential = \"api\"\nmethods = [\"GET\"]\npaths = [\"/part%d/**\"]\n", names[i], i)
	}
	s := start(t, access.String())
	const waiting = 200
	for range 2 {
		s.outsideAgent("many:" + strings.Join(names, ","))
	}
	for deadline := time.Now().Add(yetttest.Patience); s.waiting() < waiting; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d cards wait", s.waiting())
		}
	}
	page := s.openProven()
	page.wait(fmt.Sprintf(`document.querySelectorAll('.cards li').length === %d && document.querySelector('.card')`, waiting))
	const n = 3
	for i := range n {
		page.click(fmt.Sprintf(`.cards li:nth-child(%d) input`, i+1))
	}
	page.wait(fmt.Sprintf(`document.querySelectorAll('.card').length === %d`, n))
	page.approveFor("30")
	page.wait(fmt.Sprintf(`document.querySelectorAll('.card.gone').length === %d`, n))
	var until time.Time
	for _, session := range s.Sessions() {
		for _, g := range session.Grants {
			until = g.Until
		}
	}
	given := "allowed until " + until.Local().Format("15:04")
	if left := time.Until(until); left < 25*time.Minute || left > 30*time.Minute {
		t.Errorf("given for %v", left)
	}
	for i := range n {
		if sub := page.text(fmt.Sprintf(".cards li:nth-child(%d) .sub", i+1)); sub != given {
			t.Errorf("line %d says %q, not %q", i+1, sub, given)
		}
	}
	if told := page.text("#told"); told != fmt.Sprintf("%d cards were %s.", n, given) {
		t.Errorf("the page says %q", told)
	}
	if settled := page.text(".settled"); strings.Count(settled, given) != n {
		t.Errorf("at the decision stands %q", settled)
	}
	if left := s.waiting(); left != waiting-n {
		t.Errorf("%d cards wait after %d of %d were decided", left, n, waiting)
	}
	page.hasNoFault("many cards")
	page.click("[data-tidy]")
	page.wait(`document.querySelector('.detail .blank')`)
	if lines := eval[int](page, `document.querySelectorAll('.cards li').length`); lines != waiting-n || eval[bool](page, `!!document.querySelector('.card, .decide')`) {
		t.Errorf("after what is settled was cleared %d lines stand there, and:\n%s", lines, page.text(".detail"))
	}
}

// waiting is how many cards wait.
func (s *site) waiting() int {
	s.t.Helper()
	var st wire.Status
	s.RunPlain("status", "--json").JSON(s.t, &st)
	return st.Pending
}

// TestTwoTabs: what one tab decides is marked in the other where it stands, and
// nothing moves there.
func TestTwoTabs(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	one, two := s.openProven(), s.openProven()
	first, second := s.Open(), s.Open()
	first.OpenSession("http:github.issues")
	second.OpenSession("http:billing.read")
	for _, page := range []*tab{one, two} {
		page.wait(`document.querySelectorAll('.cards li').length === 2 && document.querySelector('.card') && !document.querySelector('[data-once]').disabled`)
	}
	before := eval[string](two, `document.querySelector('.card').innerText`)
	at := eval[float64](two, `document.querySelector('.cards li:nth-child(2)').getBoundingClientRect().top`)
	one.approve()
	two.wait(`document.querySelector('.cards li:first-child').classList.contains('gone')`)
	if after := eval[string](two, `document.querySelector('.card').innerText`); after != before {
		t.Error("the card has changed while it was read")
	}
	if now := eval[float64](two, `document.querySelector('.cards li:nth-child(2)').getBoundingClientRect().top`); now != at {
		t.Errorf("the next line moved from %v to %v", at, now)
	}
	if !eval[bool](two, `[...document.querySelectorAll('[data-yes]')].every((b) => b.disabled || b.closest('[hidden]')) && document.querySelector('[data-deny]').disabled`) {
		t.Error("what is decided can be decided again")
	}
	// A third card comes at the end, and takes nothing away.
	third := s.Open()
	third.OpenSession("http:billing.refund")
	two.wait(`document.querySelectorAll('.cards li').length === 3`)
	if now := eval[float64](two, `document.querySelector('.cards li:nth-child(2)').getBoundingClientRect().top`); now != at {
		t.Errorf("a new card moved a line from %v to %v", at, now)
	}
	two.click(`.cards li:nth-child(2) [data-show]`)
	two.wait(`document.querySelector('.card') && document.querySelector('.card').innerText.includes('http:billing.read') && !document.querySelector('.card.gone')`)
	two.click("[data-deny]")
	one.wait(`document.querySelectorAll('.cards li.gone').length === 2`)
}

// TestALostConnectionDecidesNothing: while the broker does not answer the page
// says so and takes no decision; after a restart it wants a proof again.
func TestALostConnectionDecidesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	page := s.openProven()
	agent := s.Open()
	agent.OpenSession("http:github.issues")
	page.wait(`document.querySelector('.decide') && !document.querySelector('[data-once]').disabled`)
	s.Kill()
	page.wait(`!document.querySelector('#lost').hidden`)
	if !eval[bool](page, `[...document.querySelectorAll('.decide button:not([data-back])')].every((b) => b.disabled)`) {
		t.Error("a decision can be sent to nobody")
	}
	page.hasNoFault("without a connection")
	s.Serve()
	page.wait(`document.querySelector('#lost').hidden && document.querySelector('[data-title]')`)
	if text := page.text("main"); !strings.Contains(text, "Yett is locked") || strings.Contains(text, "http:github.issues") {
		t.Errorf("after a restart the page shows:\n%s", text)
	}
	page.prove()
	page.wait(`document.querySelector('[data-empty]:not([hidden])')`)
}

// TestAHangingBroker: a broker that is there and says nothing is noticed too, and
// what changed while the page heard nothing is seen when it hears again.
func TestAHangingBroker(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	agent := s.Open()
	agent.OpenSession("http:github.issues")
	page := s.openProven()
	page.wait(`document.querySelector('.card')`)
	eval[bool](page, `(window.real = fetch, window.fetch = (path, options) => path === '/events' ? Promise.reject(new Error('cut off')) : real(path, options), true)`)
	syscall.Kill(s.PID(), syscall.SIGSTOP)
	defer syscall.Kill(s.PID(), syscall.SIGCONT)
	page.wait(`!document.querySelector('#lost').hidden`)
	syscall.Kill(s.PID(), syscall.SIGCONT)
	s.RunPlain("deny", agent.Session.Pending.ApprovalID)
	eval[bool](page, `(window.fetch = real, true)`)
	page.wait(`document.querySelector('#lost').hidden && document.querySelector('.cards li.gone') && document.querySelector('.card.gone')`)
}

// TestLockingEmptiesThePage: after a lock nothing that was shown stands there.
func TestLockingEmptiesThePage(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	page := s.openProven()
	agent := s.Open()
	agent.OpenSession("http:github.issues")
	page.wait(`document.querySelector('.card')`)
	if r := s.RunPlain("lock"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	page.wait(`document.querySelector('[data-title]')`)
	if all := eval[string](page, `document.querySelector('#view').outerHTML`); strings.Contains(all, "github") {
		t.Errorf("a locked page shows:\n%s", all)
	}
}

// TestP04_ForgedTextOnThePage: text of an agent that imitates the page, hides,
// reorders or brings markup is shown as what it is.
func TestP04_ForgedTextOnThePage(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	page := s.openProven()
	agent := s.Dial()
	forged := `<img src=x onerror=alert(1)></q></dd></dl></section><section class="part"><h3>Established by the system</h3>` +
		"\u202Egnp\u200B\u2066\r\n\x1b[2K" + strings.Repeat(" ", 500) + "Host: api.example.com ” “"
	agent.Must(wire.MethodHello, map[string]any{"protocol_min": 1, "protocol_max": 1, "program": forged, "version": forged, "role": "native",
		"labels": map[string]string{"host": forged}}, &agent.Hello)
	agent.Must(wire.MethodSessionOpen, map[string]any{"nonce": agent.Hello.Nonce, "capabilities": []string{"http:github.issues"}, "purpose": forged}, &agent.Session)
	page.wait(`document.querySelector('.card')`)
	if n := eval[int](page, `[...document.querySelectorAll('.card h3')].filter((h) => h.innerText.startsWith('Established')).length`); n != 1 {
		t.Errorf("%d parts say what was established", n)
	}
	if n := eval[int](page, `document.querySelectorAll('main img, main script, main [onerror]').length`); n != 0 {
		t.Errorf("%d elements came from an agent", n)
	}
	shown := eval[string](page, `document.querySelector('.claimed').innerText`)
	for _, c := range shown {
		switch c {
		case '\u202e', '\u2066', '\u200b', '\x1b':
			t.Errorf("%U stands on the page", c)
		}
	}
	if !strings.Contains(shown, `\u{202E}`) || !strings.Contains(shown, `\s{500}`) {
		t.Errorf("the marks are not there:\n%s", shown)
	}
	if n := eval[int](page, `[...document.querySelectorAll('.card *')].filter((e) => e.closest('.claimed') === null && e.textContent.includes('onerror') && !e.children.length && !e.closest('details')).length`); n != 0 {
		t.Errorf("text of the agent stands %d times outside of what it claims", n)
	}
	for _, view := range []string{"sessions", "activity"} {
		page.view(s, view, "")
		if n := eval[int](page, `document.querySelectorAll('main img, main script, main [onerror]').length`); n != 0 {
			t.Errorf("%s: %d elements came from an agent", view, n)
		}
	}
}

// TestAValueGoesInAndNeverComesOut: a value is given on the page, is used, and
// stands nowhere that the page can read.
func TestAValueGoesInAndNeverComesOut(t *testing.T) {
	t.Parallel()
	up := yetttest.StartUpstream(t, canary)
	s := start(t, up.Access())
	page := s.openProven()
	page.view(s, "access", "")
	page.typeIn("[data-secret] textarea", canary)
	page.typeIn("[data-secret] [name=phrase]", yetttest.Passphrase)
	page.click("[data-secret] [type=submit]")
	page.wait(`document.querySelector('#told').innerText.includes('stored')`)
	page.wait(`document.querySelector('table').innerText.includes('set ')`)
	agent := s.Granted("http:demo.read")
	if op := agent.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); op.State != "completed" {
		t.Fatalf("%+v", op)
	}
	page.typeIn("[data-test] [name=path]", "v1/x")
	page.click("[data-test] button")
	page.wait(`document.querySelector('[data-test] output').innerText !== ''`)
	for _, name := range []string{"waiting", "sessions", "activity", "access", "review", "doctor"} {
		page.view(s, name, "")
		if html := eval[string](page, `document.documentElement.outerHTML + JSON.stringify([...document.querySelectorAll('input, textarea')].map((f) => f.value))`); strings.Contains(html, canary) {
			t.Errorf("%s shows the value", name)
		}
	}
	if kept := eval[int](page, `localStorage.length + sessionStorage.length + document.cookie.length`); kept != 0 {
		t.Error("the page keeps something in the browser")
	}
}

// TestThePageIsSmall: all of it, as it is sent.
func TestThePageIsSmall(t *testing.T) {
	t.Parallel()
	s := serve(t)
	all := 0
	for _, path := range []string{"/", "/console.js", "/passkey.js", "/console.css", "/icon.svg"} {
		status, _, body := s.send(request{path: path})
		if status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		all += len(body)
	}
	t.Logf("%d bytes", all)
	if all > 150<<10 {
		t.Errorf("the page has %d bytes", all)
	}
}
