package sshimport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/dialrule"
	"github.com/yett-broker/yett/internal/sshconfig"
)

// Source is whose configuration is read.
type Source struct {
	Config     string   // "": that of the account
	KnownHosts []string // lists of known hosts
	Home       string   // of the account
	Account    string   // its name
}

// ErrNoConfig is returned when there is no configuration.
var ErrNoConfig = errors.New("no configuration of ssh")

// Read reads a configuration and the lists of known hosts. Nothing is planned yet.
func Read(from Source) (*Plan, error) {
	p := &Plan{home: from.Home, account: from.Account}
	var err error
	if p.config, err = sshconfig.Read(cmp.Or(from.Config, filepath.Join(p.home, ".ssh", "config")), p.home); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrNoConfig, err)
		}
		return nil, err
	}
	if p.known, err = sshconfig.ReadKnown(from.KnownHosts...); err != nil {
		return nil, err
	}
	for _, n := range append(p.config.Notes, p.known.Notes...) {
		p.NotTaken = append(p.NotTaken, NoCounterpart{Directive: n.Text, File: n.File, Line: n.Line, Why: "it was not understood"})
	}
	return p, nil
}

// Take plans the hosts that the person asked for, beside what is applied; without
// a name, all for which the configuration has a block.
func (p *Plan) Take(applied *access.Policy, names []string) {
	p.applied = applied
	if len(names) == 0 {
		names = p.config.Names()
	}
	for _, n := range names {
		p.take(n)
	}
}

// Wipe forgets the private keys.
func (p *Plan) Wipe() {
	for _, k := range p.Keys {
		clear(k.Value)
	}
}

// resolveTime bounds the look at where a name leads.
const resolveTime = 2 * time.Second

// FindPrivate marks the hosts that lie in a private network: the person sees it
// in the difference. Those behind a jump host are not reached from here.
func (p *Plan) FindPrivate(ctx context.Context) {
	rule := dialrule.Rule{OwnPorts: func() []int { return nil }}
	for _, h := range p.Hosts {
		if len(h.Jump) > 0 {
			continue
		}
		name, _, err := net.SplitHostPort(h.Address)
		if err != nil {
			continue
		}
		if _, err := netip.ParseAddr(name); err == nil {
			continue // it says so by itself
		}
		look, cancel := context.WithTimeout(ctx, resolveTime)
		addrs, err := net.DefaultResolver.LookupNetIP(look, "ip", name)
		cancel()
		for _, addr := range addrs {
			h.private = h.private || err == nil && rule.Check(netip.AddrPortFrom(addr, 22)) != nil
		}
	}
}
