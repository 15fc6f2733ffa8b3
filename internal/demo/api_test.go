package demo_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/demo"
)

func TestAPIWantsItsTokenAndNotesEveryRequest(t *testing.T) {
	a, err := demo.StartAPI([]byte("the-right-token"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	var want []demo.Arrival
	for _, c := range []struct {
		method, path, authorization string
		status                      int
	}{
		{"GET", "/v1/invoices", "", 401},
		{"GET", "/v1/invoices", "Bearer the-wrong-token", 401},
		{"GET", "/v1/invoices", "Bearer the-right-token", 200},
		{"POST", "/v1/invoices", "Bearer the-right-token", 201},
		{"PUT", "/v1/invoices", "Bearer the-right-token", 405},
		{"GET", "/v1/else", "Bearer the-right-token", 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, a.Origin+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.authorization != "" {
			req.Header.Set("Authorization", c.authorization)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status {
			t.Errorf("%s %s with %q: %d, want %d", c.method, c.path, c.authorization, res.StatusCode, c.status)
		}
		if echoes := strings.Contains(string(body), "the-right-token"); echoes != (c.status == 200) {
			t.Errorf("%s %s: %s", c.method, c.path, body)
		}
		want = append(want, demo.Arrival{Method: c.method, Path: c.path, Authorization: c.authorization, Status: c.status})
	}
	if got := a.Seen(); !slices.Equal(got, want) {
		t.Errorf("seen %v, want %v", got, want)
	}
}
