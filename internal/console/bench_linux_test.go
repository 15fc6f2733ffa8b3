package console_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// report gives the median and the 99th percentile of times.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "ms-median")
	b.ReportMetric(ms(took[len(took)*99/100]), "ms-p99")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkCardOnScreen: from an agent's request to the line in the queue of an
// open page.
func BenchmarkCardOnScreen(b *testing.B) {
	s := start(b, teamAccess)
	page := s.openProven()
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		eval[bool](page, `(window.seen = new Promise((done) => { const o = new MutationObserver(() => { if (document.querySelector('.cards li:not(.gone)')) { o.disconnect(); done(performance.timeOrigin + performance.now()); } });
			o.observe(document.querySelector('.cards'), {childList: true}); }), true)`)
		agent := s.Open()
		began := time.Now()
		agent.OpenSession("http:billing.read")
		at := eval[float64](page, `window.seen`)
		took = append(took, time.UnixMicro(int64(at*1000)).Sub(began))
		s.RunPlain("revoke", agent.Session.SessionID)
		page.wait(`!document.querySelector('.cards li:not(.gone)')`)
	}
	report(b, took)
}

// BenchmarkDecisionToFirstByte: from the gesture on the page to the first byte of
// the action at the API: by passphrase, and by a passkey that answers at once.
func BenchmarkDecisionToFirstByte(b *testing.B) {
	for _, by := range []string{"passphrase", "passkey"} {
		b.Run(by, func(b *testing.B) {
			arrived := make(chan time.Time, 1)
			up := yetttest.StartUpstreamFunc(b, func(w http.ResponseWriter, _ *http.Request) { arrived <- time.Now() })
			s := start(b, up.Access(), "demo", canary)
			agent := s.Granted("http:demo.each")
			page := s.open(s.url(""))
			if by == "passkey" {
				page.authenticator()
				page.prove()
				page.enrol(s, "laptop")
			}
			token := page.token()
			var took []time.Duration
			for n := 0; b.Loop(); n++ {
				answered := make(chan struct{})
				request := agent.Next(map[string]any{"capability": "http:demo.each", "wait_ms": 30_000,
					"action": map[string]any{"method": "GET", "path": fmt.Sprintf("/each/%d", n)}})
				go func() { defer close(answered); agent.Call(wire.MethodActionRequest, request) }()
				began := page.decides(b, token, by, s.WaitCard())
				took = append(took, (<-arrived).Sub(time.UnixMicro(int64(began*1000))))
				<-answered
			}
			report(b, took)
		})
	}
}

// decides allows a card once by a script that does what the page does, and returns
// when it began, in milliseconds.
func (tb *tab) decides(b *testing.B, token, by string, card wire.Approval) float64 {
	b.Helper()
	gesture := fmt.Sprintf(`({phrase: %q})`, base64.StdEncoding.EncodeToString([]byte(yetttest.Passphrase)))
	if by == "passkey" {
		gesture = `(async () => { const c = await post('/challenge', {decision}), passkey = await import('/passkey.js'); return {nonce: c.nonce, assertion: await passkey.get(c)}; })()`
	}
	named, err := json.Marshal([]wire.CardNamed{{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest}})
	if err != nil {
		b.Fatal(err)
	}
	return eval[float64](tb, fmt.Sprintf(`(async () => {
		const began = performance.timeOrigin + performance.now(), decision = {cards: %s, choice: 'once'};
		const post = async (path, body) => { const r = await fetch(path, {method: 'POST', body: JSON.stringify(body),
			headers: {Authorization: 'Bearer %s', 'Content-Type': 'application/json'}}); if (!r.ok) throw new Error(await r.text()); return r.json(); };
		await post('/decide', {...decision, gesture: await %s});
		return began; })()`, named, token, gesture))
}

// BenchmarkBesideManySessions: a request of the page while 200 sessions live, of
// which the console looks whether the browser belongs to one.
func BenchmarkBesideManySessions(b *testing.B) {
	s := start(b, teamAccess)
	for range 4 {
		s.outsideAgent("sessions:49")
	}
	for end := time.Now().Add(yetttest.Patience); s.sessions() < 200; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%d sessions live", s.sessions())
		}
	}
	page := s.open(s.url(""))
	token := page.token()
	var took []time.Duration
	for b.Loop() {
		ms := eval[float64](page, fmt.Sprintf(`(async () => { const began = performance.now(); const r = await fetch('/view/waiting', {headers: {Authorization: 'Bearer %s'}}); await r.text();
			return performance.now() - began; })()`, token))
		took = append(took, time.Duration(ms*float64(time.Millisecond)))
	}
	report(b, took)
}

func (s *site) sessions() int {
	s.t.Helper()
	var st wire.Status
	s.RunPlain("status", "--json").JSON(s.t, &st)
	return st.Sessions
}

// BenchmarkTenThousandActivities: what the broker has resident after the view of
// activity was opened over 10,000 rows, above what it had before.
func BenchmarkTenThousandActivities(b *testing.B) {
	up := yetttest.StartUpstream(b, canary)
	s := start(b, up.Access(), "demo", canary)
	agent := s.Granted("http:demo.read")
	for n := range 5000 { // an intent and an outcome each
		if op := agent.MustAct("http:demo.read", map[string]any{"method": "GET", "path": fmt.Sprintf("/v1/%d", n)}); op.State != "completed" {
			b.Fatalf("%+v", op)
		}
	}
	page := s.openProven()
	before := resident(b, s.PID())
	for b.Loop() {
		page.view(s, "activity", `document.querySelector('.time li')`)
		page.view(s, "waiting", "")
	}
	b.ReportMetric(float64(resident(b, s.PID()))/(1<<20), "MiB-resident")
	b.ReportMetric(float64(resident(b, s.PID())-before)/(1<<20), "MiB-more")
}

func resident(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
