// Package demo has what a demonstration and the tests need around a broker: an
// HTTP API and an SSH server on loopback that want credentials, and a search
// for planted secrets. It trusts nobody who connects beyond the credential
// that it wants, and none of it is part of the broker.
package demo

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// stopTime bounds how long Stop waits for requests under way.
const stopTime = 2 * time.Second

// API is a small HTTP API on loopback that wants a bearer token. Like a
// careless one it repeats in its answers the credential that it was sent.
type API struct {
	Origin string // scheme, host and port

	server *http.Server
	bearer []byte

	mu   sync.Mutex
	seen []Arrival
}

// Arrival is a request as it reached the API.
type Arrival struct {
	Method        string
	Path          string
	Authorization string
	Status        int // of the answer
}

// StartAPI starts an API that lets in whoever sends token.
func StartAPI(token []byte) (*API, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	a := &API{Origin: "http://" + listener.Addr().String(), bearer: append([]byte("Bearer "), token...)}
	a.server = &http.Server{Handler: a, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	go a.server.Serve(listener)
	return a, nil
}

// invoice is one of the few things that the API knows.
type invoice struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Total    string `json:"total"`
}

var invoices = []invoice{{"inv-1001", "Castle Kitchens", "129.00"}, {"inv-1002", "Portcullis Ltd", "990.00"}}

// listing is the answer to GET /v1/invoices.
type listing struct {
	YouSent  map[string]string `json:"you_sent"` // the careless part
	Invoices []invoice         `json:"invoices"`
}

type problem struct {
	Error string `json:"error"`
}

// ServeHTTP answers one request and notes it, whatever became of it.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := r.Header.Get("Authorization")
	status, answer := http.StatusNotFound, any(problem{"no such resource"})
	switch {
	case subtle.ConstantTimeCompare([]byte(got), a.bearer) != 1:
		status, answer = http.StatusUnauthorized, problem{"a bearer token is needed"}
	case r.URL.Path != "/v1/invoices":
	case r.Method == http.MethodGet:
		status, answer = http.StatusOK, listing{map[string]string{"authorization": got}, invoices}
	case r.Method == http.MethodPost:
		status, answer = http.StatusCreated, invoice{ID: "inv-1003"}
	default:
		status, answer = http.StatusMethodNotAllowed, problem{"GET or POST"}
	}
	a.mu.Lock()
	a.seen = append(a.seen, Arrival{r.Method, r.URL.Path, got, status})
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(answer)
}

// Seen returns the requests that have arrived, oldest first.
func (a *API) Seen() []Arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Arrival{}, a.seen...)
}

// Stop ends the API; requests under way get a moment.
func (a *API) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		a.server.Close()
	}
}
