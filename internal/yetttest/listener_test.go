package yetttest

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
)

// networkSockets returns the sockets of this account that wait for somebody,
// by local address, from proc_net(5): listening TCP and bound UDP.
func networkSockets(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		f, err := os.Open("/proc/net/" + table)
		if err != nil {
			continue // no IPv6 on this machine
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 8 || fields[7] != strconv.Itoa(os.Getuid()) {
				continue
			}
			if listening := fields[3] == "0A"; listening || strings.HasPrefix(table, "udp") {
				found[table+" "+fields[1]] = true
			}
		}
	}
	return found
}

// TestNoNetworkListener: the broker opens nothing but its socket, locked,
// unlocked and while it acts.
func TestNoNetworkListener(t *testing.T) {
	up := StartUpstream(t, canary)
	before := networkSockets(t)
	if len(before) == 0 {
		t.Fatal("the upstream's own listener was not seen, so a broker's would not be either")
	}
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read")
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
	for s := range networkSockets(t) {
		if !before[s] {
			t.Errorf("there is a new socket: %s", s)
		}
	}
}
