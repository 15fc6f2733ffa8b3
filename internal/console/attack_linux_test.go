package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// request is what a program that is no browser sends: whatever it likes.
type request struct {
	method, path, host string
	headers            map[string]string
	body               string
}

// send sends it from this process, on a connection of its own.
func (s *site) send(r request) (status int, headers http.Header, body string) {
	s.t.Helper()
	if r.method == "" {
		r.method = "GET"
	}
	req, err := http.NewRequest(r.method, fmt.Sprintf("http://127.0.0.1:%d%s", s.port, r.path), strings.NewReader(r.body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Host = fmt.Sprintf("localhost:%d", s.port)
	if r.host != "" {
		req.Host = r.host
	}
	for k, v := range r.headers {
		req.Header.Set(k, v)
	}
	client := http.Client{Timeout: yetttest.Patience, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatalf("%+v: %v", r, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

// own are the headers of the console's own page.
func (s *site) own(more ...string) map[string]string {
	h := map[string]string{"Origin": fmt.Sprintf("http://localhost:%d", s.port), "Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// TestConsoleAnswersItsOwnPageOnly: another name (as after DNS rebinding),
// another origin, another site, a frame, another kind of body: refused before
// anything is looked at, and no answer opens itself to another origin.
func TestConsoleAnswersItsOwnPageOnly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	port := strconv.Itoa(s.port)
	for name, r := range map[string]request{
		"rebound name":            {path: "/", host: "rebound.example:" + port},
		"an address":              {path: "/", host: "127.0.0.1:" + port},
		"the other address":       {path: "/", host: "[::1]:" + port},
		"no port":                 {path: "/", host: "localhost"},
		"another port":            {path: "/", host: "localhost:1"},
		"a name below":            {path: "/", host: "x.localhost:" + port},
		"capitals":                {path: "/", host: "LOCALHOST:" + port},
		"from another site":       {path: "/", headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}},
		"from another port":       {path: "/events", headers: map[string]string{"Sec-Fetch-Site": "same-site"}},
		"in a frame":              {path: "/", headers: map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "iframe"}},
		"foreign origin, reading": {path: "/events", headers: map[string]string{"Origin": "http://localhost:1"}},
		"no origin":               {method: "POST", path: "/lock", body: "{}", headers: map[string]string{"Content-Type": "application/json"}},
		"null origin":             {method: "POST", path: "/lock", body: "{}", headers: s.own("Origin", "null")},
		"origin of another port":  {method: "POST", path: "/lock", body: "{}", headers: s.own("Origin", "http://localhost:1")},
		"origin by address":       {method: "POST", path: "/lock", body: "{}", headers: s.own("Origin", "http://127.0.0.1:"+port)},
		"https":                   {method: "POST", path: "/lock", body: "{}", headers: s.own("Origin", "https://localhost:"+port)},
		"typed by hand":           {method: "POST", path: "/lock", body: "{}", headers: s.own("Sec-Fetch-Site", "none")},
		"a form":                  {method: "POST", path: "/lock", body: "{}", headers: s.own("Content-Type", "text/plain")},
		"a preflight":             {method: "OPTIONS", path: "/lock", headers: s.own("Access-Control-Request-Method", "POST")},
		"another method":          {method: "PUT", path: "/lock", headers: s.own()},
	} {
		status, headers, body := s.send(r)
		if status < 400 {
			t.Errorf("%s: %d %s", name, status, body)
		}
		for k := range headers {
			if strings.HasPrefix(k, "Access-Control-") || k == "Set-Cookie" {
				t.Errorf("%s: the answer has %s", name, k)
			}
		}
		if csp := headers.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", name, csp)
		}
	}
	if status, _, body := s.send(request{method: "POST", path: "/lock", body: "{}", headers: s.own()}); status != 200 {
		t.Errorf("the page's own request: %d %s", status, body)
	}
}

// TestConsoleGivesAStrangerWithCurlNothing: a program with everything that lies
// readable on the disk and in the page's files, but without the passphrase,
// reads no card and decides none; what it tries is recorded.
func TestConsoleGivesAStrangerWithCurlNothing(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess, "github", canary)
	card := s.outsideAgent("http:github.issues")
	for _, path := range []string{"/view/card?id=" + card.ApprovalID, "/view/sessions", "/view/activity", "/view/access", "/view/review", "/view/doctor", "/view/operation?id=o_1"} {
		for _, token := range []string{"", strings.Repeat("A", 43), card.ApprovalID, card.SessionID} {
			status, _, body := s.send(request{path: path, headers: map[string]string{"Authorization": "Bearer " + token}})
			if status != 401 || strings.Contains(body, card.CardDigest) {
				t.Errorf("%s with token %q: %d %s", path, token, status, body)
			}
		}
	}
	decision, _ := json.Marshal(map[string]any{"cards": []wire.CardNamed{{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest}}, "choice": "once", "gesture": map[string]any{"phrase": []byte("guess")}})
	for path, body := range map[string]string{"/decide": string(decision), "/secret": `{"name":"github","value":"eA==","rotate":true,"phrase":"eA=="}`,
		"/passkey/add": `{}`, "/passkey/begin": `{"name":"mine"}`, "/passkey/remove": `{}`, "/clicks": `{"click":true}`} {
		if status, _, answer := s.send(request{method: "POST", path: path, body: body, headers: s.own()}); status != 401 {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	if status, _, body := s.send(request{method: "POST", path: "/open", body: `{"phrase":"Z3Vlc3M="}`, headers: s.own()}); status != 403 || !strings.Contains(body, wire.CodeProofInvalid) {
		t.Errorf("a wrong passphrase: %d %s", status, body)
	}
	// What everybody may see has names and times, as yett pending has.
	status, _, body := s.send(request{path: "/view/waiting"})
	if status != 200 || !strings.Contains(body, "http:github.issues") || strings.Contains(body, card.ApprovalID+`"`) || strings.Contains(body, card.CardDigest) {
		t.Errorf("without a proof: %d %s", status, body)
	}
	if waits := s.Pending(); len(waits) != 1 {
		t.Errorf("%d cards wait", len(waits))
	}
}

// outsideAgent starts an agent in a process of its own, which asks.
func (s *site) outsideAgent(asks string) yetttest.Card {
	s.t.Helper()
	return s.agentProgram(os.Args[0], asks, "")
}

func (s *site) agentProgram(program, asks, purpose string) yetttest.Card {
	s.t.Helper()
	agent := exec.Command(program, "-test.run=^$")
	agent.Env = append(os.Environ(), "CONSOLE_AGENT="+s.Home, "CONSOLE_ASKS="+asks, "CONSOLE_PURPOSE="+purpose)
	if err := agent.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { agent.Process.Kill(); agent.Wait() })
	return s.WaitCard()
}

// TestConsoleServesNoAgent: a process with an agent's session, and what it
// starts, is refused on its own, whatever it knows; one of another account too.
func TestConsoleServesNoAgent(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	if status, _, _ := s.send(request{path: "/"}); status != 200 {
		t.Fatalf("before there is a session: %d", status)
	}
	s.Open().OpenSession()
	if status, _, body := s.send(request{path: "/"}); status != 403 {
		t.Errorf("the agent itself: %d %s", status, body)
	}
	right, _ := json.Marshal(map[string]any{"phrase": []byte(yetttest.Passphrase)})
	if status, _, body := s.send(request{method: "POST", path: "/open", body: string(right), headers: s.own()}); status != 403 || strings.Contains(body, "token") {
		t.Errorf("the agent with the passphrase: %d %s", status, body)
	}
	out, err := exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", s.url("")).Output()
	if err != nil || string(out) != "403" {
		t.Errorf("what the agent has started: %s %v", out, err)
	}
	if status, ok := askAsStranger(t, s.url("")); ok && status != "403" {
		t.Errorf("another account: %s", status)
	}
}

// TestATokenIsOfOneProcess: a token that was read from a page's memory is of no
// use to another program.
func TestATokenIsOfOneProcess(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	page := s.open(s.url(""))
	token := page.token()
	if a := page.fetch("/view/sessions", token, nil); a.Status != 200 {
		t.Fatalf("the page itself: %d %s", a.Status, a.Body)
	}
	if status, _, body := s.send(request{path: "/view/sessions", headers: map[string]string{"Authorization": "Bearer " + token}}); status != 401 {
		t.Errorf("another program with the token: %d %s", status, body)
	}
}

// TestThePortIsWholeOrNotAtAll: whoever sits on either address of the port keeps
// the console away from both; the broker serves on and says who it is. While
// the console runs nobody can share the port.
func TestThePortIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1", "[::1]", "0.0.0.0"} {
		port := freePort(t)
		squatter, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port))
		if err != nil {
			t.Logf("there is no %s here: %v", address, err)
			continue
		}
		s := &site{Broker: yetttest.New(t), t: t, port: port}
		s.ServeArgs = []string{"--console=" + strconv.Itoa(port)}
		s.Serve()
		var st wire.Status
		s.RunPlain("status", "--json").JSON(t, &st)
		if st.Console != "" || !strings.Contains(st.ConsoleProblem, fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("a squatter on %s: console %q, %q", address, st.Console, st.ConsoleProblem)
		}
		if r := s.RunPlain("console"); r.Code != 4 || strings.Contains(r.Stdout, "http") {
			t.Errorf("yett console beside a squatter on %s: exit %d %s", address, r.Code, r.Stdout)
		}
		other := map[string]string{"127.0.0.1": "[::1]", "[::1]": "127.0.0.1"}[address] // 0.0.0.0 is both
		if c, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", other, port), time.Second); other != "" && err == nil {
			c.Close()
			t.Errorf("with a squatter on %s the broker listens on %s", address, other)
		}
		squatter.Close() // not before: the port may become another test's
	}
	s := serve(t)
	for _, address := range []string{"127.0.0.1", "[::1]", "0.0.0.0", "[::]"} {
		share := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		}}
		if l, err := share.Listen(context.Background(), "tcp", fmt.Sprintf("%s:%d", address, s.port)); err == nil {
			l.Close()
			t.Errorf("somebody else listens on %s beside the console", address)
		}
	}
	second := &site{Broker: yetttest.New(t), t: t, port: s.port}
	second.ServeArgs = s.ServeArgs
	second.Serve()
	var st wire.Status
	second.RunPlain("status", "--json").JSON(t, &st)
	if st.Console != "" || !strings.Contains(st.ConsoleProblem, fmt.Sprintf("a process of user %d", os.Getuid())) { // a broker hides what it has open
		t.Errorf("a second broker: console %q, %q", st.Console, st.ConsoleProblem)
	}
}

// TestNoConsoleInATestHomeByItself: with --home nothing listens unless it is
// asked for.
func TestNoConsoleInATestHomeByItself(t *testing.T) {
	t.Parallel()
	b := yetttest.New(t)
	b.Serve()
	var st wire.Status
	b.RunPlain("status", "--json").JSON(t, &st)
	if st.Console != "" || st.ConsoleProblem == "" {
		t.Errorf("console %q, %q", st.Console, st.ConsoleProblem)
	}
	if r := b.RunPlain("serve", "--console", "--no-console"); r.Code != 2 {
		t.Errorf("both flags: exit %d", r.Code)
	}
}

// TestConsoleIsNotHeldUp: whoever takes every connection, or asks without end,
// or sends too much, keeps nobody out.
func TestConsoleIsNotHeldUp(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for range 150 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if status, _, _ := s.send(request{path: "/"}); status != 200 {
		t.Errorf("behind 150 silent connections: %d", status)
	}
	if status, _, body := s.send(request{method: "POST", path: "/open", body: `{"phrase":"` + strings.Repeat("A", 200<<10) + `"}`, headers: s.own()}); status != 400 {
		t.Errorf("a body of 200 KiB: %d %s", status, body)
	}
	if n := s.atOnce(2000); n == 2000 {
		t.Error("2000 requests at once were all answered")
	}
	page := s.open(s.url("")) // another process has an allowance of its own
	page.wait(`document.querySelector('[data-go]')`)
}

// atOnce sends that many requests on one connection without a pause, and counts
// what is answered until one is refused. Each is read before the next is sent: a
// connection that is closed with requests unread takes answers with it.
func (s *site) atOnce(n int) (answered int) {
	s.t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(yetttest.Patience))
	for in := bufio.NewReader(c); answered < n; answered++ {
		fmt.Fprintf(c, "GET /icon.svg HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", s.port)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			s.t.Fatalf("after %d answers: %v", answered, err)
		}
		io.Copy(io.Discard, res.Body)
		if res.StatusCode == http.StatusTooManyRequests {
			return answered
		}
	}
	return answered
}

// TestOtherPagesInTheBrowser: a page on another port of localhost, in the
// person's own browser, can neither ask, nor read, nor frame, nor hold on to the
// console; and a name that an attacker points at loopback is no name of it.
func TestOtherPagesInTheBrowser(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	evil := yetttest.StartUpstreamFunc(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<title>evil</title><iframe src=%q></iframe>`, s.url(""))
	})
	page := newTab(t)
	page.goTo(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1))
	for name, script := range map[string]string{
		"reading":                 `fetch(%q + 'events').then((r) => r.text())`,
		"a request":               `fetch(%q + 'lock', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'}).then((r) => r.text())`,
		"a request with a secret": `fetch(%q + 'view/waiting', {headers: {Authorization: 'Bearer x'}}).then((r) => r.text())`,
		"its script":              `import(%q + 'console.js')`,
	} {
		if got := eval[string](page, `(`+fmt.Sprintf(script, s.url(""))+`).then((x) => 'got ' + x, () => 'refused')`); got != "refused" {
			t.Errorf("%s: %s", name, got)
		}
	}
	eval[string](page, fmt.Sprintf(`fetch(%q + 'lock', {method: 'POST', mode: 'no-cors', body: '{}'}).then(() => '', () => '')`, s.url("")))
	if got := eval[string](page, `(() => { try { return 'framed ' + document.querySelector('iframe').contentWindow.document.title } catch (e) { return 'refused' } })()`); got != "refused" {
		t.Error(got)
	}
	var st wire.Status
	if s.RunPlain("status", "--json").JSON(t, &st); st.State != "ready" {
		t.Errorf("another page has locked it: %s", st.State)
	}
	page.goTo(fmt.Sprintf("http://rebound.example:%d/", s.port))
	if text := page.text("body"); !strings.Contains(text, "not the console's name") {
		t.Errorf("under another name: %s", text)
	}
}

// TestOnlyWhatWasShownIsDecided: a decision is about the digest that stood on the
// screen. With another card's digest, after the card has gone, or with another
// choice than the proof is about, nothing is given.
func TestOnlyWhatWasShownIsDecided(t *testing.T) {
	t.Parallel()
	s := start(t, teamAccess)
	page := s.open(s.url(""))
	token := page.token()
	one, two := s.Open(), s.Open()
	one.OpenSession("http:github.issues")
	two.OpenSession("http:billing.read")
	cards := s.Pending()
	if len(cards) != 2 {
		t.Fatalf("%d cards", len(cards))
	}
	right := map[string]any{"phrase": []byte(yetttest.Passphrase)}
	decide := func(id, digest, choice string) answer {
		return page.fetch("/decide", token, map[string]any{"choice": choice, "gesture": right, "cards": []wire.CardNamed{{ApprovalID: id, CardDigest: digest}}})
	}
	if a := decide(cards[0].ApprovalID, cards[1].CardDigest, "once"); a.Status != 200 || bytes.Contains(a.Body, []byte(`"done":true`)) {
		t.Errorf("another card's digest: %d %s", a.Status, a.Body)
	}
	if a := decide(cards[0].ApprovalID, cards[0].CardDigest, "always"); a.Status == 200 {
		t.Errorf("a choice that there is not: %d %s", a.Status, a.Body)
	}
	gone := cards[0].SessionID
	if a := page.fetch("/revoke", token, wire.SessionID{SessionID: gone}); a.Status != 200 {
		t.Fatalf("revoke: %d %s", a.Status, a.Body)
	}
	if a := decide(cards[0].ApprovalID, cards[0].CardDigest, "once"); a.Status != 200 || bytes.Contains(a.Body, []byte(`"done":true`)) {
		t.Errorf("a moment too late: %d %s", a.Status, a.Body)
	}
	for _, session := range s.Sessions() {
		if len(session.Capabilities) != 0 {
			t.Errorf("%s was given %v", session.SessionID, session.Capabilities)
		}
	}
	if a := decide(cards[1].ApprovalID, cards[1].CardDigest, "once"); !bytes.Contains(a.Body, []byte(`"done":true`)) {
		t.Errorf("what was shown: %d %s", a.Status, a.Body)
	}
}

func evilPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	io.WriteString(w, "<title>evil</title>")
}
