package bulk_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/bulk"
	"github.com/yett-broker/yett/internal/httpexec"
)

// H18: the executor brings a large body no faster than large streams may while
// another session acts. Of 16 MiB the burst is 8.
func TestH18_LargeBodyWaitsForOthers(t *testing.T) {
	const size = 16 << 20
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) }))
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
	began := time.Now()
	res, err := e.Do(context.Background(), httpexec.Target{Scheme: "http", Host: "127.0.0.1", Port: port, Private: true, Session: "this session"},
		httpexec.Credential{Kind: httpexec.KindBearer, Secret: []byte("a-token-of-the-test")}, action.HTTP{Method: "GET", Path: "/"})
	if err != nil || len(res.Body) != size || res.Truncated {
		t.Fatalf("%+v: %v", res, err)
	}
	if took := time.Since(began); took < (size-8<<20-1<<20)*time.Second/bulk.Rate {
		t.Errorf("16 MiB came within %v", took)
	}
}
