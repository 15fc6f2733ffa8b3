package yetttest

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// TestA4_NothingButTheConsole: with the console on, what is new on the network is
// the console's port on loopback and nothing else, locked, unlocked and while an
// action runs. TestNoNetworkListener holds that without it there is nothing.
func TestA4_NothingButTheConsole(t *testing.T) {
	up := StartUpstream(t, canary)
	before := networkSockets(t)
	b := New(t)
	b.ServeArgs = []string{"--console=" + strconv.Itoa(freePort(t))}
	var console string
	look := func(when string) {
		t.Helper()
		u, err := url.Parse(console)
		must(t, err)
		port, err := strconv.Atoi(u.Port())
		must(t, err)
		suffix, found := fmt.Sprintf(":%04X", port), 0
		for s := range networkSockets(t) {
			if before[s] {
				continue
			}
			found++
			address := strings.Fields(s)[1]
			if loopback := strings.HasPrefix(s, "tcp 0100007F:") || strings.HasPrefix(s, "tcp6 00000000000000000000000001000000:"); !loopback || !strings.HasSuffix(address, suffix) {
				t.Errorf("%s: there is a new socket: %s", when, s)
			}
		}
		if found == 0 {
			t.Errorf("%s: the console was not seen, so nothing else would be either", when)
		}
	}
	b.Serve()
	if console = b.status().Console; console == "" {
		t.Fatal("the broker has no console")
	}
	look("locked")
	b.Unlock()
	b.Apply(up.Access())
	b.SetSecret("demo", canary)
	look("unlocked")
	c := b.Granted("http:demo.read")
	c.MustAct("http:demo.read", readX)
	look("acting")
}
