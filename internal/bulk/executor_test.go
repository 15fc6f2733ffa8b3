package bulk_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/bulk"
	"github.com/yett-broker/yett/internal/httpexec"
)

// do makes one GET of an upstream in a session while another session acts.
func do(t *testing.T, answer http.HandlerFunc) *httpexec.Result {
	t.Helper()
	up := httptest.NewServer(answer)
	defer up.Close()
	u, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	e := httpexec.New(httpexec.Options{OwnPorts: func() []int { return nil }})
	defer e.Close()
	bulk.Acts("another session")
	bulk.Acts("this session")
	res, err := e.Do(context.Background(), httpexec.Target{Scheme: "http", Host: "127.0.0.1", Port: port, Private: true, Session: "this session"},
		httpexec.Credential{Kind: httpexec.KindBearer, Secret: []byte("a-token-of-the-test")}, action.HTTP{Method: "GET", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// H18: the executor brings a large body no faster than large streams may while
// another session acts. Of 16 MiB the burst is 8.
func TestH18_LargeBodyWaitsForOthers(t *testing.T) {
	const size = 16 << 20
	began := time.Now()
	res := do(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) })
	if len(res.Body) != size || res.Truncated {
		t.Fatalf("%+v", res)
	}
	if took := time.Since(began); took < (size-8<<20-1<<20)*time.Second/bulk.Rate {
		t.Errorf("16 MiB came within %v", took)
	}
}

// A long head is a large stream too: it waits until another stream has had its
// time, which is 4 MiB more than the burst.
func TestH18_LongHeadWaitsForOthers(t *testing.T) {
	bulk.Acts("another session")
	bulk.Acts("a third session")
	began := time.Now()
	begun, other := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(other)
		close(begun)
		(&bulk.Stream{Session: "a third session"}).Came(12 << 20)
	}()
	defer func() { <-other }()
	<-begun
	res := do(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 200 {
			w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 1<<10))
		}
	})
	if len(res.Headers) < 200 {
		t.Fatalf("%d headers", len(res.Headers))
	}
	if took := time.Since(began); took < 3<<20*time.Second/bulk.Rate {
		t.Errorf("the head came within %v", took)
	}
}
