package yetttest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// second starts a puppet of the second account.
func second(t testing.TB) *puppet {
	t.Helper()
	needsSecond(t)
	c, err := net.Dial("unix", Bin(filepath.Join("second", secondSocket)))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	p := &puppet{t: t, in: c, out: newLines(c), from: c}
	if said, err := p.hear(); err != nil || said != "up" {
		t.Fatalf("the second account says %q, %v", said, err)
	}
	fmt.Sscan(p.do("pid"), &p.pid)
	return p
}

// reachable makes a broker whose home the second account could reach but for
// the modes that Yett gave it.
func reachable(t testing.TB) (*Broker, *Upstream) {
	t.Helper()
	needsSecond(t)
	t.(*testing.T).Setenv("TMPDIR", "/tmp")
	b, up := demoBroker(t)
	must(t, os.Chmod(filepath.Dir(b.Home), 0o755))
	return b, up
}

// denied wants the kernel to keep a puppet from something.
func (p *puppet) denied(order ...string) {
	p.t.Helper()
	if said, err := p.try(order...); err == nil {
		p.t.Errorf("%v succeeds: %.100s", order, said)
	} else if !strings.Contains(err.Error(), "denied") && !strings.Contains(err.Error(), "not permitted") {
		p.t.Errorf("%v: %v", order, err)
	}
}

// TestAttackOtherAccountKeptOut: another account connects by the path and by
// every path that /proc has for it, reads what lies in the home, and goes for
// the broker's and the agent's memory and pipes.
func TestAttackOtherAccountKeptOut(t *testing.T) {
	b, up := reachable(t)
	must(t, os.Chmod(b.Home, 0o755)) // the home of a person often is
	h := b.startShim().ready()
	h.grant("http:demo.read")
	p := second(t)
	for _, root := range []string{"", fmt.Sprintf("/proc/%d/root", b.PID()), fmt.Sprintf("/proc/%d/root", os.Getpid()), "/proc/self/root", fmt.Sprintf("/proc/%d/root", h.cmd.Process.Pid)} {
		p.denied("connect", root+b.Location().Socket)
	}
	p.denied("openfile", b.Home+"/vault.yett")
	p.denied("openfile", b.Home+"/ledger.db")
	for _, pid := range []int{b.PID(), os.Getpid(), h.cmd.Process.Pid} {
		p.denied("mem", fmt.Sprint(pid))
		p.denied("ptrace", fmt.Sprint(pid))
		p.denied("steal", fmt.Sprint(pid), "0")
		p.denied("look", fmt.Sprint(pid), "environ")
		p.denied("openfile", fmt.Sprintf("/proc/%d/fd/0", pid))
	}
	h.call("http_request", getX).wants(t, "completed: ")
	up.only(t, "GET /v1/x")
}

// TestAttackOtherAccountThroughWideModes: somebody widened all modes, and
// another account connects. The broker takes its own account only, and says in
// the record that it refused.
func TestAttackOtherAccountThroughWideModes(t *testing.T) {
	b, up := reachable(t)
	c := b.Granted("http:demo.read")
	socket := b.Location().Socket
	for _, path := range []string{b.Home, filepath.Dir(socket)} {
		must(t, os.Chmod(path, 0o711))
	}
	must(t, os.Chmod(socket, 0o666))
	for _, role := range []string{"native", "cli", "shim"} {
		p := second(t)
		p.do("connect", socket)
		p.refused(wire.CodeAttributionFailed, "hello", role, "friend")
		if line := p.do("read"); line != "closed" {
			t.Errorf("%s: the channel is open: %s", role, line)
		}
	}
	b.modes()
	b.refusedRow(wire.CodeAttributionFailed, "another account")
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/own"})
	up.only(t, "GET /v1/own")
}

// modes puts back what the clients want before they speak.
func (b *Broker) modes() {
	socket := b.Location().Socket
	must(b.T, os.Chmod(socket, 0o600))
	must(b.T, os.Chmod(filepath.Dir(socket), 0o700))
	must(b.T, os.Chmod(b.Home, 0o700))
}

// TestAttackConnectionPassedToOtherAccount: a process of the account hands its
// granted connection to one of another account, which writes on it.
func TestAttackConnectionPassedToOtherAccount(t *testing.T) {
	b, up := reachable(t)
	p := second(t)
	at := p.do("listen")
	c := b.Granted("http:demo.read")
	f, err := c.conn.File()
	must(t, err)
	must(t, giveFile(at, f))
	f.Close()
	p.do("receive")
	p.do("send", actionLine(c.Session.SessionID, c.seq+1, "/v1/evil"))
	if r, ok := c.Read(); ok && r.Code() != wire.CodeAttributionFailed {
		t.Errorf("%q %s", r.Code(), r.Result)
	}
	b.changed(c.Session.SessionID, wire.CodeAttributionFailed)
	up.only(t)
}

// TestAttackFakeBrokerOfOtherAccount: another account has made the home and
// listens in it, with the modes that Yett wants. Clients say nothing to it.
func TestAttackFakeBrokerOfOtherAccount(t *testing.T) {
	p := second(t)
	lure := p.do("mkdir")
	p.do("fakelisten", lure)
	p.do("chmod", lure, "755")
	p.do("chmod", lure+"/run", "711")
	p.do("chmod", lure+"/run/broker.sock", "666")
	p.order("fakebroker")
	h := (&Broker{T: t}).host(exec.Command(Bin("yett-mcp"), "--home", lure), nil).start().ready()
	h.call("list_access", "{}").refused(t, "unavailable", "belongs to uid")
	c, err := net.Dial("unix", lure+"/run/broker.sock") // nobody came: the first connection is ours
	must(t, err)
	must(t, c.(*net.UnixConn).CloseWrite())
	if got, err := p.hear(); err != nil || got != "" {
		t.Errorf("the fake broker was told %q, %v", got, err)
	}
	c.Close()
	p.do("remove", lure)
}
