package sshexec_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// do dials tg, whose host key matters to nobody.
func do(t *testing.T, o sshexec.Options, tg sshexec.Target) error {
	t.Helper()
	if o.OwnPorts == nil {
		o.OwnPorts = noPorts
	}
	tg.User, tg.HostKeys = "deploy", []string{publicLine(newTestKey(t).PublicKey())}
	if tg.DialTimeout == 0 {
		tg.DialTimeout = time.Second
	}
	_, err := sshexec.New(o).Do(t.Context(), tg, newTestKey(t), action.SSH{Command: "x"})
	return err
}

func TestAddressesNeverDialled(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16",
		"224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "fe80::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254", "100::1", "2001:0:1::1", "64:ff9b:1::a9fe:a9fe",
		"::ffff:169.254.169.254", "::ffff:0.0.0.0", "::169.254.169.254", "::127.0.0.1", "::ffff:0:a9fe:a9fe",
		"64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fe80::1%lo", "2606:4700::1%lo",
	} {
		t.Run(a, func(t *testing.T) {
			err := do(t, sshexec.Options{}, sshexec.Target{Address: net.JoinHostPort(a, "22"), Private: true})
			wantError(t, err, sshexec.CodeTargetBlocked, false)
		})
		t.Run("by name "+a, func(t *testing.T) {
			o := sshexec.Options{Resolve: answers(t, "198.51.100.7", a)}
			wantError(t, do(t, o, sshexec.Target{Address: "host.example:22", Private: true}), sshexec.CodeTargetBlocked, false)
		})
	}
}

func TestPrivateAddressesNeedTheAccessFile(t *testing.T) {
	for _, a := range []string{
		"10.1.2.3", "100.64.0.1", "127.0.0.1", "127.9.9.9", "172.16.0.1", "172.31.255.255", "192.168.1.1", "192.0.0.8", "198.18.0.1",
		"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1",
		"::1", "fc00::1", "fdff::1", "fec0::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::1", "2002:c0a8:101::1",
	} {
		t.Run(a, func(t *testing.T) {
			err := do(t, sshexec.Options{}, sshexec.Target{Address: net.JoinHostPort(a, "22")})
			wantError(t, err, sshexec.CodeTargetBlocked, false)
		})
	}
}

// answers is a resolver that knows one answer.
func answers(t *testing.T, addrs ...string) func(context.Context, string) ([]netip.Addr, error) {
	t.Helper()
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	return func(context.Context, string) ([]netip.Addr, error) { return list, nil }
}

func TestOwnPortsAreNeverDialled(t *testing.T) {
	h := newFakeHost(t, func(net.Conn) {})
	_, port, err := net.SplitHostPort(h.address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	o := sshexec.Options{OwnPorts: func() []int { return []int{1, n} }}
	for _, a := range append([]string{"127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"}, ownAddresses(t)...) {
		err := do(t, o, sshexec.Target{Address: net.JoinHostPort(a, port), Private: true})
		wantError(t, err, sshexec.CodeTargetBlocked, false)
	}
	select {
	case <-h.accepted:
		t.Error("the port was dialled")
	default:
	}
}

// ownAddresses are those of this machine that are not loopback.
func ownAddresses(t *testing.T) []string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, n := range list {
		if p, err := netip.ParsePrefix(n.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			own = append(own, p.Addr().String())
		}
	}
	return own
}

// A name is asked for once; a second, different answer has no use.
func TestNameIsResolvedOnceAndDialledAsJudged(t *testing.T) {
	s := yetttest.StartSSHD(t)
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	e := sshexec.New(sshexec.Options{OwnPorts: noPorts, Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
		asked++
		if host != "web1.example" {
			return nil, fmt.Errorf("asked for %q", host)
		}
		if asked > 1 {
			return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")}, nil // nobody listens on the first
	}})
	tg := targetOf(s)
	tg.Address = net.JoinHostPort("web1.example", port)
	res, err := e.Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "exit 9"})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 9)
	if asked != 1 {
		t.Errorf("the name was resolved %d times", asked)
	}
}

func TestNamesThatLeadNowhere(t *testing.T) {
	for name, resolve := range map[string]func(context.Context, string) ([]netip.Addr, error){
		"no addresses": func(context.Context, string) ([]netip.Addr, error) { return nil, nil },
		"an error":     func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") },
		"no answer":    func(ctx context.Context, _ string) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			err := do(t, sshexec.Options{Resolve: resolve}, sshexec.Target{Address: "host.example:22"})
			wantError(t, err, sshexec.CodeUpstream, false)
		})
	}
	for _, address := range []string{"", "host.example", "host.example:", "host.example:0", "host.example:ssh", "host.example:65536", "a:b:c"} {
		t.Run(address, func(t *testing.T) {
			o := sshexec.Options{Resolve: answers(t, "127.0.0.1")}
			wantError(t, do(t, o, sshexec.Target{Address: address, Private: true}), sshexec.CodeUpstream, false)
		})
	}
}
