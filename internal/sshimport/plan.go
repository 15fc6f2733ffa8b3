// Package sshimport plans what comes over from OpenSSH's configuration into the
// access file: hosts with the keys that ssh knows of them, the ways to them, the
// credentials of their key files. It says of each host why it is left out, and of
// each line that has no counterpart where it stands. It applies nothing, and
// reads no private key.
//
// It trusts ssh's own files as far as ssh does; what it writes is read again by
// internal/access before anything of it counts.
package sshimport

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/sshconfig"
)

// Plan is what is about to be taken over from ssh's configuration.
type Plan struct {
	Hosts    []*Host // those that lead to others come first
	Keys     []*Key
	LeftOut  []LeftOut
	NotTaken []NoCounterpart

	config  *sshconfig.Config
	known   *sshconfig.Known
	applied *access.Policy
	home    string // of the account
	account string // its name
}

// Host becomes a [host.…].
type Host struct {
	Name    string   `json:"name"`
	From    string   `json:"from"` // what ssh calls it
	Address string   `json:"address"`
	User    string   `json:"user"`
	Key     string   `json:"key"`
	Jump    []string `json:"jump,omitempty"`

	target    bool // asked for, not only on the way to another
	found     sshconfig.Found
	hostNames []string
	keepalive string
	env       []string
	private   bool
	there     bool // applied already
}

// Key becomes a [credential.…] and its value.
type Key struct {
	Name        string `json:"name"`
	File        string `json:"file"`
	certificate string
	there       bool
	Value       []byte `json:"-"` // wiped by Plan.Wipe
}

// LeftOut is a host that is not taken over.
type LeftOut struct {
	Host string `json:"host"`
	Why  string `json:"why"`
}

// NoCounterpart is a line of the configuration that has no counterpart.
type NoCounterpart struct {
	Directive string   `json:"directive"`
	File      string   `json:"file"`
	Line      int      `json:"line"`
	Hosts     []string `json:"hosts,omitempty"`
	Why       string   `json:"why"`
}

// hop is one host as ProxyJump names it.
type hop struct{ user, alias, port string }

var hopForm = regexp.MustCompile(`^(?:ssh://)?(?:([^@]+)@)?(\[[^\]]+\]|[^:@\[\]]+)(?::([0-9]+))?/?$`)

func readHop(s string) (hop, error) {
	m := hopForm.FindStringSubmatch(s)
	if m == nil {
		return hop{}, fmt.Errorf("ProxyJump %q cannot be read", s)
	}
	return hop{m[1], strings.Trim(m[2], "[]"), m[3]}, nil
}

// take plans a host that the person asked for. What was planned for one that is
// left out is left out with it.
func (p *Plan) take(alias string) {
	hosts, keys, other := len(p.Hosts), len(p.Keys), len(p.NotTaken)
	h, err := p.host(hop{alias: alias}, 0)
	if err != nil {
		p.Hosts, p.Keys, p.NotTaken = p.Hosts[:hosts], p.Keys[:keys], p.NotTaken[:other]
		p.LeftOut = append(p.LeftOut, LeftOut{alias, err.Error()})
		return
	}
	h.target = true
}

// maxHops bounds ways that lead in a circle.
const maxHops = 8

// host plans one host and those that lead to it.
func (p *Plan) host(at hop, depth int) (*Host, error) {
	if depth > maxHops {
		return nil, errors.New("the way to it is too long, or leads in a circle")
	}
	o := p.config.Lookup(at.alias)
	h, err := p.identify(at, o)
	if err != nil {
		return nil, err
	}
	if same := p.planned(h); same != nil {
		return same, nil
	}
	base := at.alias
	if plain, err := p.identify(hop{alias: at.alias}, o); err == nil && (plain.Address != h.Address || plain.User != h.User) {
		base += "-" + strings.Trim(at.user+"-"+at.port, "-") // as the way to another host names it
	}
	p.name(h, base)
	if h.there {
		return h, nil
	}
	if command := o.Value("proxycommand"); command != "" && command != "none" {
		return nil, errors.New("it is reached by a program (ProxyCommand); give it a ProxyJump, or write its table by hand")
	}
	if err := p.way(h, o, depth); err != nil {
		return nil, err
	}
	if err := p.knownKeys(h, o); err != nil {
		return nil, err
	}
	if err := p.identity(h, o); err != nil {
		return nil, err
	}
	p.rest(h, o)
	if err := p.check(h); err != nil {
		return nil, err
	}
	p.Hosts = append(p.Hosts, h)
	return h, nil
}

// identify settles where a host is and who is let in there.
func (p *Plan) identify(at hop, o sshconfig.Options) (*Host, error) {
	name := cmp.Or(o.Value("hostname"), at.alias)
	name, err := expand(name, map[byte]string{'h': at.alias})
	if err != nil {
		return nil, fmt.Errorf("HostName: %w", err)
	}
	port := cmp.Or(at.port, cmp.Or(o.Value("port"), "22"))
	return &Host{From: at.alias, Address: net.JoinHostPort(strings.ToLower(strings.TrimSuffix(name, ".")), port),
		User: cmp.Or(at.user, cmp.Or(o.Value("user"), p.account))}, nil
}

func (p *Plan) planned(h *Host) *Host {
	for _, o := range p.Hosts {
		if o.From == h.From && o.Address == h.Address && o.User == h.User {
			return o
		}
	}
	return nil
}

// name gives a host a name of the access file. One that is applied already, with
// the same account and address, stays as it is.
func (p *Plan) name(h *Host, base string) {
	base = strings.Trim(notInHostNames.ReplaceAllString(strings.ToLower(base), "-"), "-._")
	h.Name = base
	for n := 2; ; n++ {
		old, applied := p.applied.Host(h.Name)
		if applied && old.Address.String() == h.Address && old.User == h.User {
			h.there = true
			return
		}
		if !applied && !slices.ContainsFunc(p.Hosts, func(o *Host) bool { return o.Name == h.Name }) {
			return
		}
		h.Name = base + "-" + strconv.Itoa(n)
	}
}

var notInHostNames = regexp.MustCompile(`[^a-z0-9._-]+`)

func (p *Plan) way(h *Host, o sshconfig.Options, depth int) error {
	jump := o.Value("proxyjump")
	if jump == "" || strings.EqualFold(jump, "none") {
		return nil
	}
	for i, text := range strings.Split(jump, ",") {
		at, err := readHop(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		next, err := p.host(at, depth+1)
		if err != nil {
			return fmt.Errorf("its jump host %s cannot be taken over: %w", at.alias, err)
		}
		// A list is the way from the first: the own ways of the others do not count,
		// there as here.
		if i > 0 && len(next.Jump) > 0 && !slices.Equal(next.Jump, h.Jump) {
			p.NotTaken = append(p.NotTaken, NoCounterpart{Directive: "ProxyJump", Hosts: []string{next.From}, Why: "not used on the way to " + h.From})
		}
		h.Jump = append(h.Jump, next.Name)
	}
	return nil
}

// knownKeys are the keys by which ssh knows the host.
func (p *Plan) knownKeys(h *Host, o sshconfig.Options) error {
	if alias := o.Value("hostkeyalias"); alias != "" {
		h.found = p.known.Lookup(alias, 22)
		h.hostNames = []string{strings.ToLower(alias)}
	} else {
		h.found = p.known.LookupAddress(h.Address)
	}
	h.found.Keys, h.found.Authorities = usableKeys(h.found.Keys), usableKeys(h.found.Authorities)
	h.found.Revoked = usableKeys(h.found.Revoked)
	if len(h.found.Authorities) == 0 {
		h.hostNames = nil
	}
	if len(h.found.Keys)+len(h.found.Authorities) == 0 {
		return fmt.Errorf("ssh knows no key of %s that can be listed; yett ssh scan shows those that it has now", h.Address)
	}
	return nil
}

func usableKeys(keys []ssh.PublicKey) []ssh.PublicKey {
	return slices.DeleteFunc(slices.Clone(keys), func(k ssh.PublicKey) bool { return !access.UsableHostKey(k.Type()) })
}

// identity settles which key the host gets: the first file of IdentityFile that
// is there, or of those that ssh tries without one.
func (p *Plan) identity(h *Host, o sshconfig.Options) error {
	files, asked := o.Values("identityfile"), true
	if len(files) == 0 {
		asked = false
		for _, name := range []string{"id_rsa", "id_ecdsa", "id_ed25519"} { // ssh's own order
			files = append(files, filepath.Join(p.home, ".ssh", name))
		}
	}
	host, _, _ := net.SplitHostPort(h.Address)
	var paths []string
	for _, f := range files {
		path, err := expand(f, map[byte]string{'d': p.home, 'h': host, 'n': h.From, 'r': h.User, 'u': p.account, 'i': ""})
		if err != nil {
			return fmt.Errorf("IdentityFile: %w", err)
		}
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(p.home, rest)
		}
		if regular(path) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 && asked {
		return fmt.Errorf("its IdentityFile %s is not there", strings.Join(files, ", "))
	}
	if len(paths) == 0 {
		return errors.New("it has no IdentityFile, and none of ssh's usual ones is there")
	}
	for _, path := range paths[1:] {
		p.NotTaken = append(p.NotTaken, NoCounterpart{Directive: "IdentityFile " + path, Hosts: []string{h.From}, Why: "a host gets one key: " + paths[0]})
	}
	h.Key = p.key(paths[0], o)
	return nil
}

// rest takes over what else has a counterpart, and names what has none.
func (p *Plan) rest(h *Host, o sshconfig.Options) {
	if n, err := strconv.Atoi(o.Value("serveraliveinterval")); err == nil && n > 0 {
		h.keepalive = strconv.Itoa(min(n, 600)) + "s"
	}
	for _, name := range o.Values("sendenv") {
		switch {
		case access.MaySet(name) && !slices.Contains(h.env, name):
			h.env = append(h.env, name)
		case !access.MaySet(name):
			p.NotTaken = append(p.NotTaken, NoCounterpart{Directive: "SendEnv " + name, Hosts: []string{h.From}, Why: "a host's env lists whole names, and none that steers programs"})
		}
	}
	for _, d := range o.Others("hostname", "port", "user", "identityfile", "certificatefile", "proxyjump", "hostkeyalias",
		"serveraliveinterval", "sendenv", "identitiesonly") {
		p.without(h, d)
	}
}

func (p *Plan) without(h *Host, d sshconfig.Directive) {
	for i := range p.NotTaken {
		if o := &p.NotTaken[i]; o.File == d.File && o.Line == d.Line {
			if !slices.Contains(o.Hosts, h.From) {
				o.Hosts = append(o.Hosts, h.From)
			}
			return
		}
	}
	p.NotTaken = append(p.NotTaken, NoCounterpart{Directive: strings.TrimSpace(d.Name + " " + strings.Join(d.Args, " ")), File: d.File, Line: d.Line,
		Hosts: []string{h.From}, Why: whyNotTaken(d.Key)})
}

func whyNotTaken(key string) string {
	for why, keys := range map[string]string{
		"an agent is never forwarded":                               "forwardagent identityagent addkeystoagent",
		"nothing is forwarded":                                      "forwardx11 forwardx11trusted forwardx11timeout localforward remoteforward dynamicforward tunnel gatewayports clearallforwardings exitonforwardfailure",
		"host keys are always checked, and a changed one is fatal":  "stricthostkeychecking checkhostip updatehostkeys verifyhostkeydns nohostauthenticationforlocalhost",
		"keys come from the lists that this command read":           "userknownhostsfile globalknownhostsfile knownhostscommand revokedhostkeys hashknownhosts",
		"Yett keeps connections itself":                             "controlmaster controlpath controlpersist",
		"hosts are let in by one key alone":                         "passwordauthentication kbdinteractiveauthentication challengeresponseauthentication gssapiauthentication gssapidelegatecredentials hostbasedauthentication preferredauthentications numberofpasswordprompts pkcs11provider securitykeyprovider pubkeyauthentication",
		"which commands run is said by the access file":             "remotecommand localcommand permitlocalcommand requesttty sessiontype setenv stdinnull forkafterauthentication",
		"algorithms follow from the listed keys, and SHA-1 is none": "hostkeyalgorithms pubkeyacceptedalgorithms pubkeyacceptedkeytypes casignaturealgorithms ciphers macs kexalgorithms",
	} {
		if slices.Contains(strings.Fields(keys), key) {
			return why
		}
	}
	return "it has no counterpart"
}

var errToken = errors.New("has a % token that is not read here")

// expand replaces the tokens of ssh_config(5).
func expand(s string, tokens map[byte]string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i < len(s) && s[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if i >= len(s) {
			return "", errToken
		}
		value, ok := tokens[s[i]]
		if !ok {
			return "", errToken
		}
		b.WriteString(value)
	}
	return b.String(), nil
}
