package httpexec

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

func benchServer(b *testing.B) (*httptest.Server, Target) {
	body := []byte(`{"data":[` + strings.Repeat(`{"id":"in_1","amount":4200},`, 30) + `{}]}`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}))
	b.Cleanup(s.Close)
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	return s, Target{Scheme: "http", Host: "127.0.0.1", Port: int(at.Port()), Private: true}
}

// The two to compare: the same GET over a kept connection, without and with
// this package.
func BenchmarkGETDirect(b *testing.B) {
	s, _ := benchServer(b)
	client := &http.Client{Timeout: time.Minute}
	for b.Loop() {
		req, err := http.NewRequest("GET", s.URL+"/v1/invoices", nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

func BenchmarkGETExecuted(b *testing.B) {
	_, target := benchServer(b)
	e := newExecutor(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		if _, err := e.Do(ctx, target, bearer, get); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPOSTExecuted(b *testing.B) {
	_, target := benchServer(b)
	e := newExecutor(b)
	r := action.HTTP{Method: "POST", Path: "/v1/invoices", Body: []byte("{}")}
	for b.Loop() {
		if _, err := e.Do(context.Background(), target, bearer, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScrub(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		for name, unit := range map[string]string{"json": `{"id":"in_1","amount":4200},`, "percent": "%25", "backslash": `\\`} {
			body := []byte(strings.Repeat(unit, size/len(unit)))
			b.Run(fmt.Sprintf("%s-%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					s := newScrubber([]byte(secret))
					s.bytes(body, len(body), false)
					s.wipe()
				}
			})
		}
	}
}

func BenchmarkNewScrubber(b *testing.B) {
	for b.Loop() {
		newScrubber([]byte(secret)).wipe()
	}
}
