package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/yett-broker/yett/internal/yetttest"
)

// One real Chromium serves all tests of the package; each tab is a page of its
// own. It is started so that it does not descend from the test, which plays the
// agents: the console refuses what an agent has started.
var chromium struct {
	once sync.Once
	ctx  context.Context
	dir  string
	end  func()
	err  error
}

var chromiumFlags = []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1",
	"--remote-debugging-port=0", "--host-resolver-rules=MAP rebound.example 127.0.0.1"}

func startBrowser() {
	program, err := exec.LookPath("chromium")
	if err != nil {
		chromium.err = fmt.Errorf("install Chromium: apt-get install chromium: %w", err)
		return
	}
	if chromium.dir, chromium.err = os.MkdirTemp("", "chromium"); chromium.err != nil {
		return
	}
	args := append(append([]string{}, chromiumFlags...), "--user-data-dir="+chromium.dir, "about:blank")
	// The shell ends at once, so the browser has another parent by then. Should
	// the tests be killed, somebody still ends it.
	const detached = `exec >/dev/null 2>&1 </dev/null; "$0" "$@" & b=$!; (while kill -0 "$TESTS" && kill -0 $b; do sleep 2; done; kill $b) &`
	start := exec.Command("setsid", append([]string{"sh", "-c", detached, program}, args...)...)
	start.Env = append(os.Environ(), "HOME="+chromium.dir, "TESTS="+strconv.Itoa(os.Getpid()))
	if chromium.err = start.Run(); chromium.err != nil {
		return
	}
	at, err := devTools(filepath.Join(chromium.dir, "DevToolsActivePort"))
	if err != nil {
		chromium.err = err
		return
	}
	alloc, endAlloc := remote.NewAllocator(context.Background(), at, remote.NoModifyURL)
	ctx, endFirst := chromedp.NewContext(alloc)
	chromium.err = chromedp.Do(ctx)
	chromium.ctx = ctx
	chromium.end = func() {
		quit, cancel := context.WithTimeout(ctx, 5*time.Second)
		chromedp.Do(quit, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, browser.Close, cdp.Empty{})
			return err
		}))
		cancel()
		endFirst()
		endAlloc()
	}
}

// devTools reads where the browser listens for its driver.
func devTools(file string) (string, error) {
	for deadline := time.Now().Add(yetttest.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(file); err == nil {
			if port, path, ok := strings.Cut(strings.TrimSpace(string(text)), "\n"); ok {
				return "ws://127.0.0.1:" + port + path, nil
			}
		}
	}
	return "", fmt.Errorf("Chromium did not start")
}

func closeBrowser() {
	if chromium.end != nil {
		chromium.end()
	}
	if chromium.dir != "" {
		for range 50 { // it writes its last files while it ends
			if os.RemoveAll(chromium.dir) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// site is a broker with a console.
type site struct {
	*yetttest.Broker
	t    testing.TB
	port int
}

// freePort is a port that nobody has on either loopback address.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// serve starts a broker with a console, locked.
func serve(t testing.TB) *site {
	t.Helper()
	s := &site{Broker: yetttest.New(t), t: t, port: freePort(t)}
	s.ServeArgs = []string{"--console=" + strconv.Itoa(s.port)}
	s.Serve()
	return s
}

// start starts a broker with a console, unlocked, with an access file.
func start(t testing.TB, access string, values ...string) *site {
	t.Helper()
	s := serve(t)
	s.Unlock()
	s.Apply(access)
	for i := 0; i+1 < len(values); i += 2 {
		s.SetSecret(values[i], values[i+1])
	}
	return s
}

func (s *site) url(rest string) string { return fmt.Sprintf("http://localhost:%d/%s", s.port, rest) }

// tab is one page in the browser.
type tab struct {
	t   testing.TB
	ctx context.Context
}

// open opens a page of the browser at an address.
func (s *site) open(address string) *tab {
	s.t.Helper()
	tb := newTab(s.t)
	tb.goTo(address)
	return tb
}

func (tb *tab) goTo(address string) {
	tb.t.Helper()
	tb.do(chromedp.Navigate(address))
}

func newTab(t testing.TB) *tab {
	t.Helper()
	chromium.once.Do(startBrowser)
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	ctx, end := chromedp.NewContext(chromium.ctx)
	t.Cleanup(end)
	tb := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // without a deadline, which would be the tab's own
		t.Fatal(err)
	}
	tb.do(chromedp.EmulateViewport(1280, 860), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error { // as if it were in front
		_, err := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
	return tb
}

// do runs steps with a deadline.
func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	if err := tb.try(steps...); err != nil {
		ctx, cancel := context.WithTimeout(tb.ctx, 5*time.Second)
		defer cancel()
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		tb.t.Fatalf("%v\nthe page says:\n%s", err, text)
	}
}

func (tb *tab) try(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(tb.ctx, yetttest.Patience)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

// eval evaluates an expression that may be a promise.
func eval[T any](tb *tab, expression string) (v T) {
	tb.t.Helper()
	tb.do(func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		v, err = chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise)(ctx, t)
		return none, err
	})
	return v
}

// wait waits until an expression holds.
func (tb *tab) wait(condition string) {
	tb.t.Helper()
	eval[bool](tb, fmt.Sprintf(`new Promise((done, fail) => {
		const end = Date.now() + %d;
		const look = () => { let ok; try { ok = %s } catch (e) {} ok ? done(true) : Date.now() > end ? fail(new Error('in vain: ' + %q)) : setTimeout(look, 10); };
		look();
	})`, (yetttest.Patience-5*time.Second).Milliseconds(), condition, condition))
}

func (tb *tab) text(selector string) string {
	tb.t.Helper()
	return eval[string](tb, fmt.Sprintf(`(document.querySelector(%q) || {}).innerText || ''`, selector))
}

func (tb *tab) click(selector string) {
	tb.t.Helper()
	tb.do(chromedp.WaitEnabled(selector))
	eval[bool](tb, fmt.Sprintf(`(document.querySelector(%q).scrollIntoView({block: 'center'}), true)`, selector)) // out from under the bar
	tb.do(chromedp.Click(selector))
}

// typeIn types into a field as a person does, key by key.
func (tb *tab) typeIn(selector, text string) {
	tb.t.Helper()
	tb.do(chromedp.WaitVisible(selector), chromedp.SendKeys(selector, text))
}

// keys presses keys as quickly as a hand does, however slowly the test runs: the
// page is told when each was pressed.
func (tb *tab) keys(text string) {
	tb.t.Helper()
	at := float64(time.Now().UnixMilli()) / 1000
	tb.do(chromedp.KeyEvent(text, func(p *input.DispatchKeyEventParams) {
		at += 0.01
		p.Timestamp = input.TimeSinceEpoch(at)
	}))
}

// prove gives the passphrase at the gate.
func (tb *tab) prove() {
	tb.t.Helper()
	tb.typeIn("#open-phrase", yetttest.Passphrase)
	tb.click("[data-go]")
	tb.wait(`document.querySelector('#view').dataset.open === 'true'`)
}

// openProven opens the console and gives the passphrase.
func (s *site) openProven() *tab {
	s.t.Helper()
	tb := s.open(s.url(""))
	tb.prove()
	tb.wait(`document.querySelector('[data-view=waiting]')`)
	return tb
}

// approve allows what is shown, once, by the passphrase.
func (tb *tab) approve() {
	tb.t.Helper()
	tb.click("[data-once]")
	tb.typeIn(".decide [name=phrase]", yetttest.Passphrase)
	tb.click(".decide [type=submit]")
}

// approveFor allows what is shown for a number of minutes that the page offers.
func (tb *tab) approveFor(minutes string) {
	tb.t.Helper()
	tb.click("[data-for]")
	tb.do(chromedp.SetValue(".decide [name=minutes]", minutes))
	tb.typeIn(".decide [name=phrase]", yetttest.Passphrase)
	tb.click(".decide [type=submit]")
}

// answer is what the console answered to a script.
type answer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// fetch asks the console from a page, as a script there would.
func (tb *tab) fetch(address, token string, body any) answer {
	tb.t.Helper()
	options := `{headers}`
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			tb.t.Fatal(err)
		}
		options = fmt.Sprintf(`{method: 'POST', headers: {...headers, 'Content-Type': 'application/json'}, body: %q}`, raw)
	}
	return eval[answer](tb, fmt.Sprintf(`(async () => { const headers = %q ? {Authorization: 'Bearer ' + %q} : {};
		try { const r = await fetch(%q, %s); const text = await r.text(); let body; try { body = JSON.parse(text) } catch { body = text } return {status: r.status, body}; }
		catch (e) { return {status: 0, body: String(e)}; } })()`, token, token, address, options))
}

// token opens a page for a script.
func (tb *tab) token() string {
	tb.t.Helper()
	a := tb.fetch("/open", "", map[string]any{"phrase": []byte(yetttest.Passphrase)})
	var got struct{ Token string }
	if json.Unmarshal(a.Body, &got); a.Status != 200 || got.Token == "" {
		tb.t.Fatalf("opening: %d %s", a.Status, a.Body)
	}
	return got.Token
}
