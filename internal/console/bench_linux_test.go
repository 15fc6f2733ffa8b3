package console_test

import (
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

// BenchmarkDecisionToFirstByte: from the gesture by passphrase on the page to the
// first byte of the action at the API.
func BenchmarkDecisionToFirstByte(b *testing.B) {
	arrived := make(chan time.Time, 1)
	up := yetttest.StartUpstreamFunc(b, func(w http.ResponseWriter, _ *http.Request) { arrived <- time.Now() })
	s := start(b, up.Access(), "demo", canary)
	agent := s.Granted("http:demo.each")
	page := s.open(s.url(""))
	token := page.token()
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		answered := make(chan struct{})
		request := agent.Next(map[string]any{"capability": "http:demo.each", "wait_ms": 30_000,
			"action": map[string]any{"method": "GET", "path": fmt.Sprintf("/each/%d", n)}})
		go func() { defer close(answered); agent.Call(wire.MethodActionRequest, request) }()
		card := s.WaitCard()
		a := page.fetch("/decide", token, map[string]any{"cards": []wire.CardNamed{{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest}},
			"choice": "once", "gesture": map[string]any{"phrase": []byte(yetttest.Passphrase)}})
		if a.Status != 200 {
			b.Fatalf("%d %s", a.Status, a.Body)
		}
		began := eval[float64](page, `performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/decide')).at(-1).startTime + performance.timeOrigin`)
		took = append(took, (<-arrived).Sub(time.UnixMicro(int64(began*1000))))
		<-answered
	}
	report(b, took)
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
