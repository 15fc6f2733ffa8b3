package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/preset"
	"github.com/yett-broker/yett/internal/sshconfig"
	"github.com/yett-broker/yett/internal/wire"
)

// prepareHost asks for a host, an account there, a key and what may be run.
func (a *app) prepareHost(ctx context.Context, p preset.Preset, o addOptions) (addition, error) {
	d := addition{preset: p}
	var err error
	if o.host == "" {
		if o.host, err = a.answer(ctx, "Host: ", "--host", ""); err != nil {
			return d, err
		}
	}
	if err := o.splitPort(); err != nil {
		return d, err
	}
	if o.user == "" {
		if o.user, err = a.answer(ctx, "Account on "+o.host+": ", "--user", ""); err != nil {
			return d, err
		}
	}
	if o.port < 1 || o.port > 65535 {
		return d, usageError{errors.New("--port is a number from 1 to 65535")}
	}
	d.name = orElse(o.name, nameOfHost(o.host))
	s := preset.Server{Name: d.name, User: o.user, Address: net.JoinHostPort(strings.Trim(o.host, "[]"), strconv.Itoa(o.port)),
		Private: o.private, Look: p.Commands, Run: o.commands}
	if d.value, d.generate, err = a.privateKey(ctx, o); err != nil {
		return d, err
	}
	if s.HostKeys, err = a.hostKeys(ctx, s.Address, o.hostKeys); err != nil {
		clear(d.value)
		return d, err
	}
	if !d.generate && !o.noTest { // a new key is not let in yet
		d.trial = &trialAction{capability: preset.LookCapability(d.name), action: client.Action{Command: &p.Test.Command}}
	}
	d.tables = s.Tables()
	return d, checkTables(d.tables)
}

// nameOfHost is the first part of a host's name, or all of an address.
func nameOfHost(host string) string {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case err != nil:
		name, _, _ := strings.Cut(strings.ToLower(host), ".")
		return name
	case a.Is6():
		return "ip6-" + strings.ReplaceAll(a.WithZone("").String(), ":", "-")
	}
	return a.String()
}

// splitPort takes the port off a host that is given as host:port. An IPv6
// address has one only behind brackets.
func (o *addOptions) splitPort() error {
	host, text, err := net.SplitHostPort(o.host)
	if err != nil {
		return nil
	}
	port, err := strconv.Atoi(text)
	if err != nil || host == "" {
		return usageError{fmt.Errorf("--host is HOST or HOST:PORT, not %s", strconv.QuoteToASCII(o.host))}
	}
	if o.port != defaultSSHPort && o.port != port {
		return usageError{fmt.Errorf("--host says port %d, and --port says %d", port, o.port)}
	}
	o.host, o.port = host, port
	return nil
}

// privateKey reads the key that the person has, or tells that one is to be made.
func (a *app) privateKey(ctx context.Context, o addOptions) (key []byte, generate bool, err error) {
	switch {
	case o.key != "" && o.generate:
		return nil, false, usageError{errors.New("--key and --generate-key exclude each other")}
	case o.key == "" && !o.generate:
		const made = "make one"
		if o.key, err = a.answer(ctx, "Private key file (empty: make a new key): ", "--key or --generate-key", made); err != nil {
			return nil, false, err
		}
		o.generate = o.key == made
	}
	if o.generate {
		return nil, true, nil
	}
	if rest, ok := strings.CutPrefix(o.key, "~/"); ok {
		if u, err := user.Current(); err == nil {
			o.key = filepath.Join(u.HomeDir, rest)
		}
	}
	if key, err = readInput(o.key, maxSecret); err != nil {
		return nil, false, err
	}
	if key, err = a.openKey(ctx, filepath.Base(o.key), key, o.keyPassphrase); err != nil {
		clear(key)
		return nil, false, badKey(approval.Printable(o.key), err)
	}
	return key, false, nil
}

// hostKeys settles which keys the host may show. Keys that are given in full
// are taken as they are; a fingerprint picks among those that the host shows
// now; otherwise the person compares.
func (a *app) hostKeys(ctx context.Context, address string, given []string) ([]string, error) {
	var full, fingerprints []string
	for _, k := range given {
		if strings.HasPrefix(k, "SHA256:") {
			fingerprints = append(fingerprints, k)
		} else {
			full = append(full, k)
		}
	}
	if len(given) > 0 && len(fingerprints) == 0 {
		return full, nil
	}
	shown, err := scanHostKeys(ctx, address)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "The keys of %s cannot be asked for: %v.", approval.Escape(address, 200), err).
			Then("Check host and port; or give the key as the host's administrator has it: --host-key 'TYPE BASE64'.")
	}
	if len(fingerprints) > 0 {
		return pickKeys(full, shown, fingerprints)
	}
	return a.confirmKeys(ctx, address, shown)
}

func pickKeys(full []string, shown []ssh.PublicKey, fingerprints []string) ([]string, error) {
	for _, f := range fingerprints {
		i := slices.IndexFunc(shown, func(k ssh.PublicKey) bool { return ssh.FingerprintSHA256(k) == f })
		if i < 0 {
			return nil, wire.Errorf(wire.CodeBadRequest, "The host shows no key with the fingerprint %s; nothing was changed.", approval.Escape(f, 100)).
				Then("Find out whether this is the host that you mean: another key can mean another host.")
		}
		full = append(full, sshconfig.Line(shown[i]))
	}
	return full, nil
}

// confirmKeys lets the person compare. What was seen over the network proves
// nothing by itself.
func (a *app) confirmKeys(ctx context.Context, address string, shown []ssh.PublicKey) ([]string, error) {
	question := "\n" + approval.Printable(address) + " shows these keys:\n"
	lines := make([]string, len(shown))
	for i, k := range shown {
		lines[i] = sshconfig.Line(k)
		question += fmt.Sprintf("  %-20s %s\n", k.Type(), ssh.FingerprintSHA256(k))
	}
	question += "Compare one with what its administrator, or ssh-keygen -lf on the host itself, says.\nAre they the host's? Type yes: "
	said, err := a.answer(ctx, question, "--host-key", "no")
	if err != nil {
		return nil, err
	}
	if said != "yes" {
		return nil, wire.Errorf(wire.ReasonDenied, "The host's keys were not confirmed; nothing was changed.").
			Then("Ask the host's administrator for their fingerprints and run it again.")
	}
	return lines, nil
}
