//go:build linux

package shim

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// B8: every state of the broker has its own clear and fast answer, with the
// next step for the person.
func TestB8_BrokerStates(t *testing.T) {
	refuseHello := func(e *wire.Error) func(asked) any { return func(asked) any { return e } }
	refuseOpen := func(e *wire.Error) func(asked) any {
		return func(a asked) any {
			if a.Method == wire.MethodSessionOpen {
				return e
			}
			return ordinary(nil)(a)
		}
	}
	_, unsupported := wire.Negotiate(7, 9, wire.RoleShim)
	for _, c := range []struct {
		name   string
		answer func(asked) any // nil: no broker
		code   string
		wants  []string
	}{
		{"missing", nil, "unavailable: ", []string{"yett up"}},
		{"locked", refuseOpen(wire.NewError(wire.CodeLocked)), "locked: ", []string{"yett unlock"}},
		{"unsupported version", refuseHello(unsupported), "protocol_unsupported: ", []string{"pdate and restart yett"}},
		{"quarantined", refuseOpen(wire.NewError(wire.CodeQuarantined)), "quarantined: ", []string{"yett audit verify"}},
		{"not attributed", refuseOpen(wire.NewError(wire.CodeAttributionFailed)), "attribution_failed: ", []string{"by its absolute path as command; yett connect writes it so"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := testHome(t)
			if c.answer != nil {
				startBroker(t, home, c.answer)
			}
			h := startShim(t, "--home", home).ready()
			best(t, 200*time.Millisecond, c.name, func() time.Duration {
				began := time.Now()
				said, isError := h.call("http_request", `{"capability":"a","method":"GET","path":"/"}`)
				took := time.Since(began)
				first := strings.SplitN(said, "\n", 2)
				if !isError || len(first) != 2 || !strings.HasPrefix(first[1], c.code) {
					t.Errorf("got %s", said)
				}
				wants(t, said, append(c.wants, "[test broker under --home ", "Nothing was executed", "Next step: ")...)
				if c.code != "attribution_failed: " {
					wants(t, said, "Tell the person, who has to act; then call again.")
				}
				return took
			})
			if c.answer == nil {
				if entries, err := os.ReadDir(home); err != nil || len(entries) != 0 {
					t.Errorf("something was started or made: %v %v", entries, err)
				}
			}
		})
	}
}

// A process that is not the installed yett gets nothing, not even a hello.
func TestB8_ImposterGetsNothing(t *testing.T) {
	home := testHome(t)
	elsewhere := filepath.Join(testHome(t), "yett")
	self, err := os.Executable()
	must(t, err)
	must(t, copyFile(elsewhere, self))
	installed := programs
	programs = filepath.Dir(elsewhere)
	b := startBroker(t, home, ordinary(func(asked) any { return silence }))
	programs = installed
	h := startShim(t, "--home", home).ready()
	said, isError := h.call("list_access", "{}")
	if !isError {
		t.Errorf("got %s", said)
	}
	wants(t, said, "unavailable: ", "not proven", "Next step: ")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.asked) != 0 {
		t.Errorf("the imposter was told %v", b.asked)
	}
}

func TestC5_NewBrokerNewSessionNewDecision(t *testing.T) {
	home := testHome(t)
	list := ordinary(func(asked) any { return wire.AccessListResult{Capabilities: []wire.Access{}} })
	b := startBroker(t, home, list)
	h := startShim(t, "--home", home).ready()
	said, _ := h.call("list_access", "{}")
	lacks(t, said, "new session")
	b.stop()
	// No time passes between the end and the next call: the end must be seen.
	said, isError := h.call("list_access", "{}")
	if !isError {
		t.Errorf("without a broker: %s", said)
	}
	wants(t, said, "unavailable: ")
	b2 := startBroker(t, home, list)
	said, isError = h.call("list_access", "{}")
	if isError {
		t.Error(said)
	}
	wants(t, said, "This is a new session with Yett", "request_access")
	if n := len(b2.requests(wire.MethodHello)); n != 1 {
		t.Errorf("%d greetings", n)
	}
	said, _ = h.call("list_access", "{}")
	lacks(t, said, "new session")
}

// A broker that was restarted between two calls costs no call.
func TestC5_RestartBetweenCalls(t *testing.T) {
	home := testHome(t)
	list := ordinary(func(asked) any { return wire.AccessListResult{Capabilities: []wire.Access{}} })
	b := startBroker(t, home, list)
	h := startShim(t, "--home", home).ready()
	h.call("list_access", "{}")
	b.stop()
	startBroker(t, home, list)
	said, isError := h.call("list_access", "{}")
	if isError {
		t.Error(said)
	}
	wants(t, said, "This is a new session with Yett")
}

// Calls that wait while one of them dials share what it finds, so that a
// broker that hangs is not asked by each of them in turn.
func TestB8_HungBrokerIsAskedOnce(t *testing.T) {
	home := testHome(t)
	b := startBroker(t, home, func(asked) any { return silence })
	h := startShim(t, "--home", home).ready()
	const calls = 20
	for i := range calls {
		h.send(toolCall(i, "list_access", "{}"))
	}
	for i := range calls {
		if r := h.await(strconv.Itoa(i)); !r.Result.IsError {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	if n := len(b.requests(wire.MethodHello)); n > 2 {
		t.Errorf("%d greetings for %d calls", n, calls)
	}
}
