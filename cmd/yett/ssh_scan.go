package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/sshconfig"
	"github.com/yett-broker/yett/internal/wire"
)

func newSSHScan(a *app) *cobra.Command {
	var knownHosts, jump []string
	port := 22
	c := &cobra.Command{
		Use: "scan HOST", Short: "Show the keys that a host shows now, beside those that are listed and known", Args: cobra.ExactArgs(1),
		Long: "Asks a host for its keys, by the name of its [host.…] or by its address, and shows their\n" +
			"fingerprints beside the keys that the applied access file lists (with your proof) and that\n" +
			"ssh knows. Nothing is authenticated and nothing is changed: what a network shows proves\n" +
			"nothing by itself, so compare with what the host's administrator says.\n\n" +
			"A host that others lead to, by its table or by --jump, is asked through them by the broker,\n" +
			"with your proof: each of them has to show its listed key, and lets in its own.\n\n" +
			"It exits with 3 when the host shows another key than is listed or known.",
		RunE: func(c *cobra.Command, args []string) error {
			if port < 1 || port > 65535 {
				return usageError{errors.New("--port is a number from 1 to 65535")}
			}
			return a.scan(c.Context(), args[0], port, jump, knownHosts)
		},
	}
	c.Flags().IntVar(&port, "port", 22, "its port, where HOST is an address without one")
	c.Flags().StringSliceVar(&jump, "jump", nil, "the declared `HOSTS` that lead to it, in order, in place of those of its table")
	c.Flags().StringArrayVar(&knownHosts, "known-hosts", nil, "compare with this `FILE` in place of ssh's own; may be repeated")
	return c
}

// scanned is what yett ssh scan found.
type scanned struct {
	Host    string       `json:"host"` // its name in the access file
	Address string       `json:"address"`
	Jump    []string     `json:"jump,omitempty"` // what it was asked over
	Keys    []scannedKey `json:"keys"`
	Listed  []string     `json:"listed"` // fingerprints that the access file lists, and
	Known   []string     `json:"known"`  // that ssh knows
	Changed bool         `json:"changed"`
}

type scannedKey struct {
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"`
	Key         string `json:"key"`
	Listed      bool   `json:"listed"`
	Known       bool   `json:"known"`
	Revoked     bool   `json:"revoked"`
}

func (a *app) scan(ctx context.Context, name string, port int, jump, files []string) error {
	if len(files) == 0 {
		var err error
		if files, err = knownHostsFiles(); err != nil {
			return err
		}
	}
	known, err := sshconfig.ReadKnown(files...)
	if err != nil {
		return cannotRead(err)
	}
	host, err := a.listedHost(ctx, name, port)
	if err != nil {
		return err
	}
	if len(jump) > 0 {
		host.Jump = jump
	}
	shown, err := a.shownKeys(ctx, host)
	if err != nil {
		return err
	}
	address := host.Address.String()
	r := compareKeys(host, known.LookupAddress(address), shown)
	if a.json {
		printJSON(a.stdout, r)
	} else {
		a.printScanned(r)
	}
	if r.Changed {
		return wire.Errorf(wire.ReasonDenied, "%s shows another key than is listed or known.", approval.Printable(address)).
			Then("Find out from its administrator whether it was changed on purpose. Until then nothing goes there. If it was: yett access show > access.toml, put the new key into its host_keys, yett apply access.toml.")
	}
	return nil
}

// shownKeys asks the host for its keys: from here, or, where others lead to it,
// by the broker, which has the keys that let it in at these.
func (a *app) shownKeys(ctx context.Context, host access.Host) ([]ssh.PublicKey, error) {
	address := host.Address.String()
	if len(host.Jump) == 0 {
		shown, err := scanHostKeys(ctx, address)
		if err == nil || errors.Is(err, errInterrupted) {
			return shown, err
		}
		return nil, wire.Errorf(wire.CodeUnavailable, "The keys of %s cannot be asked for: %v.", approval.Escape(address, 200), err).
			Then("Check host and port.")
	}
	var answer wire.ShownKeys
	if err := a.manageProven(ctx, wire.MethodHostKeys, wire.HostKeys{Address: address, Jump: host.Jump}, &answer); err != nil {
		return nil, err
	}
	var shown []ssh.PublicKey
	for _, line := range answer.Keys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, fmt.Errorf("reading a key of %s: %w", approval.Escape(address, 200), err)
		}
		shown = append(shown, key)
	}
	return shown, nil
}

func knownHostsFiles() ([]string, error) {
	u, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("naming the account: %w", err)
	}
	dir := filepath.Join(u.HomeDir, ".ssh")
	return []string{filepath.Join(dir, "known_hosts"), filepath.Join(dir, "known_hosts2"),
		"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}, nil
}

func cannotRead(err error) error {
	return wire.Errorf(wire.CodeBadRequest, "What ssh knows cannot be read: %s.", approval.Escape(err.Error(), 300)).
		Then("Correct that file, or name others: --config, --known-hosts.")
}

// listedHost is the host of the applied access file that is meant, by its name or
// by its address. Without a broker, or without a proof, it is the address alone.
func (a *app) listedHost(ctx context.Context, name string, port int) (access.Host, error) {
	meant := access.Host{Address: addressOf(name, port)}
	p, err := a.appliedPolicy(ctx)
	if err != nil {
		var fail *wire.Error
		if !errors.As(err, &fail) || fail.Code == wire.CodeProofInvalid {
			return meant, err
		}
		a.note("What is listed is not compared: %s", strings.TrimSuffix(fail.Message, "."))
		return meant, nil
	}
	if h, ok := p.Host(name); ok {
		return h, nil
	}
	for _, h := range p.Hosts() {
		if h.Address == meant.Address {
			return h, nil
		}
	}
	return meant, nil
}

// appliedPolicy is the applied access file, by the person's proof.
func (a *app) appliedPolicy(ctx context.Context) (*access.Policy, error) {
	if !a.canProve() {
		return nil, wire.NewError(wire.CodeProofRequired)
	}
	var text wire.AccessText
	if err := a.manageProven(ctx, wire.MethodAccessText, wire.Empty{}, &text); err != nil {
		return nil, err
	}
	return access.Parse([]byte(text.File))
}

// addressOf reads host, host:port, [IPv6]:port and an IPv6 address alone.
func addressOf(s string, port int) access.Address {
	if _, after, ok := strings.Cut(s, "@"); ok {
		s = after
	}
	if host, text, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= 65535 {
			return access.Address{Host: strings.ToLower(host), Port: n}
		}
	}
	return access.Address{Host: strings.ToLower(strings.Trim(s, "[]")), Port: port}
}

// compareKeys sets what a host shows beside what is listed and known. A host has
// changed when a connection to it would fail: it shows a key that was revoked, or
// another key of a listed kind, or none of those that are listed. Where nothing is
// listed, what ssh knows counts in its stead.
func compareKeys(host access.Host, known sshconfig.Found, shown []ssh.PublicKey) scanned {
	r := scanned{Host: host.Name, Address: host.Address.String(), Jump: host.Jump, Keys: []scannedKey{}, Listed: []string{}, Known: []string{}}
	kinds, expected := map[string]bool{}, host.HostKeys
	for _, line := range host.HostKeys {
		r.Listed = append(r.Listed, access.Fingerprint(line))
	}
	for _, k := range known.Keys {
		r.Known = append(r.Known, ssh.FingerprintSHA256(k))
		if len(host.HostKeys)+len(host.HostCAs) == 0 {
			expected = append(expected, sshconfig.Line(k))
		}
	}
	for _, line := range expected {
		kinds[strings.Fields(line)[0]] = true
	}
	met := false
	for _, k := range shown {
		one := scannedKey{Type: k.Type(), Fingerprint: ssh.FingerprintSHA256(k), Key: sshconfig.Line(k)}
		one.Listed = slices.Contains(host.HostKeys, one.Key)
		one.Known = slices.Contains(r.Known, one.Fingerprint)
		one.Revoked = slices.Contains(host.Revoked, one.Key) ||
			slices.ContainsFunc(known.Revoked, func(o ssh.PublicKey) bool { return bytes.Equal(o.Marshal(), k.Marshal()) })
		good := slices.Contains(expected, one.Key)
		met = met || good
		r.Changed = r.Changed || one.Revoked || kinds[k.Type()] && !good
		r.Keys = append(r.Keys, one)
	}
	r.Changed = r.Changed || len(expected) > 0 && !met
	return r
}

func (a *app) printScanned(r scanned) {
	of := r.Address
	if r.Host != "" {
		of = r.Host + " (" + r.Address + ")"
	}
	if len(r.Jump) > 0 {
		of += " over " + strings.Join(r.Jump, ", ")
	}
	fmt.Fprintf(a.stdout, "%s shows:\n", approval.Printable(of))
	var fresh []string
	for _, k := range r.Keys {
		var words []string
		for word, is := range map[string]bool{"listed": k.Listed, "known to ssh": k.Known, "REVOKED": k.Revoked} {
			if is {
				words = append(words, word)
			}
		}
		slices.Sort(words)
		if len(words) == 0 {
			words = []string{"new"}
		}
		if !k.Listed && !k.Revoked {
			fresh = append(fresh, strconv.Quote(k.Key))
		}
		fmt.Fprintf(a.stdout, "  %-20s %s  %s\n", k.Type, k.Fingerprint, strings.Join(words, ", "))
	}
	a.printOld(r, "listed", r.Listed)
	a.printOld(r, "known to ssh", r.Known)
	if len(fresh) > 0 {
		fmt.Fprintf(a.stdout, "Compare a fingerprint with what its administrator, or ssh-keygen -lf on the host itself, says. Then:\n  host_keys = [%s]\n", strings.Join(fresh, ", "))
	}
}

// printOld prints what is listed or known and was not shown.
func (a *app) printOld(r scanned, word string, old []string) {
	for _, f := range old {
		if !slices.ContainsFunc(r.Keys, func(k scannedKey) bool { return k.Fingerprint == f }) {
			fmt.Fprintf(a.stdout, "  not shown            %s  %s\n", f, word)
		}
	}
}
