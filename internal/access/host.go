package access

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Host is an SSH server, with the only keys it may show.
type Host struct {
	Name      string
	Address   Address
	User      string
	Key       string        // the name of an ssh-key credential
	HostKeys  []string      // 'type base64', as in authorized_keys
	HostCAs   []string      // likewise: authorities that may certify it
	HostNames []string      // what a certificate must be for; none: the host of Address
	Revoked   []string      // keys that never count
	Jump      []string      // names of the hosts that lead to it, in order
	Private   bool          // the address may lie in a private range
	Keepalive time.Duration // 0: the executor's own
	Env       []string      // environment variables that an agent may set
}

// String is the account and the address, as a person writes them.
func (h Host) String() string { return h.User + "@" + h.Address.String() }

// Host returns the host of that name.
func (p *Policy) Host(name string) (Host, bool) {
	h, ok := p.hosts[name]
	for _, list := range []*[]string{&h.HostKeys, &h.HostCAs, &h.HostNames, &h.Revoked, &h.Jump, &h.Env} {
		*list = slices.Clone(*list)
	}
	return h, ok
}

// Hosts returns all hosts, sorted by name.
func (p *Policy) Hosts() []Host {
	out := make([]Host, 0, len(p.hosts))
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		h, _ := p.Host(name)
		out = append(out, h)
	}
	return out
}

// Way returns the hosts that lead to a host, the first being the one that is
// dialled. The first jump host of a list is itself reached as its own table says.
func (p *Policy) Way(name string) []Host { return p.WayOver(p.hosts[name].Jump) }

// WayOver returns the same for a host that is reached over these jump hosts,
// each of which is declared.
func (p *Policy) WayOver(jump []string) []Host {
	var way []Host
	for _, name := range p.way(jump) {
		h, _ := p.Host(name)
		way = append(way, h)
	}
	return way
}

func (p *Policy) way(jump []string) []string {
	var way []string
	// Parse refuses circles; the bound holds while it looks for them.
	for ; len(jump) > 0 && len(way) <= MaxJumps; jump = p.hosts[jump[0]].Jump {
		way = append(slices.Clone(jump), way...)
	}
	return way
}

// MaxJumps is more than any network needs.
const MaxJumps = 8

// sshPlace is the place of an ssh-key: every host that uses it.
func sshPlace(hosts map[string]Host, key string) string {
	var places []string
	for _, h := range hosts {
		if h.Key == key {
			places = append(places, h.String())
		}
	}
	slices.Sort(places)
	return strings.Join(slices.Compact(places), ",")
}

// hostKeyTypes are the keys by which a host or an authority can be known.
var hostKeyTypes = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA}

// UsableHostKey reports whether keys of a type can be listed.
func UsableHostKey(kind string) bool { return slices.Contains(hostKeyTypes, kind) }

func (b *builder) host(t *table) {
	checkName(t)
	h := Host{Name: t.name(), Private: t.boolean("private")}
	if s, ok := t.required("address"); ok {
		a, err := ParseAddress(s)
		if err != nil {
			t.problem("address", "%v", err)
		}
		h.Address = a
		h.Private = h.Private || namesPrivate(a.Host)
	}
	if s, ok := t.required("user"); ok {
		if !userForm.MatchString(s) {
			t.problem("user", "is not a user name of letters, digits, '.', '_' and '-'")
		}
		h.User = s
	}
	if s, ok := t.required("key"); ok {
		b.reference(t, "key", "credential", s)
		if c, ok := b.policy.credentials[s]; ok && c.Kind != KindSSHKey {
			t.problem("key", "credential %s is not of kind ssh-key", s)
		}
		h.Key = s
	}
	readHostKeys(t, &h)
	b.readJumps(t, &h)
	h.Keepalive = readKeepalive(t)
	h.Env = readEnv(t)
	t.finish()
	b.policy.hosts[h.Name] = h
}

// readHostKeys reads what the host may prove itself by.
func readHostKeys(t *table, h *Host) {
	h.HostCAs = readKeys(t, "host_ca", t.list("host_ca"))
	lines := t.list
	if len(h.HostCAs) == 0 {
		lines = t.requiredList
	}
	h.HostKeys = readKeys(t, "host_keys", lines("host_keys"))
	h.Revoked = readKeys(t, "revoked_keys", t.list("revoked_keys"))
	for _, k := range h.Revoked {
		if slices.Contains(h.HostKeys, k) || slices.Contains(h.HostCAs, k) {
			t.problem("revoked_keys", "a key is listed as good too")
		}
	}
	for _, n := range t.list("host_names") {
		canonical, err := canonicalHost(n.value)
		switch {
		case err != nil:
			t.problemAt(n.line, "host_names", "%v", err)
		case canonical != n.value:
			t.problemAt(n.line, "host_names", "is not written in lower case and without a dot at its end")
		case len(h.HostCAs) == 0:
			t.problemAt(n.line, "host_names", "has no meaning without host_ca")
		}
		h.HostNames = append(h.HostNames, n.value)
	}
}

func readKeys(t *table, key string, lines []text) []string {
	var keys []string
	for _, k := range lines {
		canonical, why := canonicalHostKey(k.value)
		switch {
		case why != "":
			t.problemAt(k.line, key, "%s", why)
		case slices.Contains(keys, canonical):
			t.problemAt(k.line, key, "a key is there twice")
		default:
			keys = append(keys, canonical)
		}
	}
	return keys
}

// canonicalHostKey returns 'type base64', without a comment.
func canonicalHostKey(line string) (canonical, why string) {
	if strings.ContainsAny(line, "\r\n") {
		return "", "a key has a line break"
	}
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case err != nil:
		return "", "is not a public key of the form 'type base64'"
	case len(options) > 0:
		return "", "a host key has no options"
	case strings.Contains(key.Type(), "-cert-"):
		return "", "a certificate is not listed itself: host_ca lists the key of its authority"
	case key.Type() == "ssh-dss":
		return "", "keys of type ssh-dss prove nothing any more"
	case !slices.Contains(hostKeyTypes, key.Type()):
		return "", "a host has no key of type " + clip(key.Type())
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), ""
}

func (b *builder) readJumps(t *table, h *Host) {
	for _, j := range t.list("jump") {
		if !b.declared["host"][j.value] {
			t.problemAt(j.line, "jump", "there is no [host.…] of that name")
		}
		h.Jump = append(h.Jump, j.value)
	}
}

// ways looks at every way to a host, now that all hosts are known.
func (b *builder) ways(tables []*table) {
	for _, t := range tables {
		way := b.policy.way(b.policy.hosts[t.name()].Jump)
		switch {
		case slices.Contains(way, t.name()), len(slices.Compact(slices.Sorted(slices.Values(way)))) != len(way):
			t.problem("jump", "the way leads in a circle")
		case len(way) > MaxJumps:
			t.problem("jump", "leads over more than %d hosts, or in a circle", MaxJumps)
		}
	}
}

const minKeepalive, maxKeepalive = time.Second, 10 * time.Minute

func readKeepalive(t *table) time.Duration {
	s, ok := t.optional("keepalive")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < minKeepalive || d > maxKeepalive || d%time.Second != 0 {
		t.problem("keepalive", `is not a time from "1s" to "10m", in whole seconds`)
	}
	return d
}

var (
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	// steering are variables that make another program of the one that was
	// approved. A host that takes them is set up badly, and that is not ours to
	// use.
	steering = regexp.MustCompile(`^(LD_.*|DYLD_.*|PATH|IFS|ENV|BASH_.*|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|ZDOTDIR|SSH_.*|` +
		`PERL5.*|PERLLIB|PYTHON(PATH|HOME|STARTUP|INSPECT)|RUBY(LIB|OPT)|NODE_OPTIONS|GIT_.*|EDITOR|VISUAL|PAGER)$`)
)

// MaySet reports whether a variable of that name can be listed for a host.
func MaySet(name string) bool { return variableForm.MatchString(name) && !steering.MatchString(name) }

func readEnv(t *table) []string {
	var names []string
	for _, n := range t.list("env") {
		switch {
		case !variableForm.MatchString(n.value):
			t.problemAt(n.line, "env", "is not the name of an environment variable")
		case steering.MatchString(n.value):
			t.problemAt(n.line, "env", "%s can make another program of an approved one and is never set", n.value)
		}
		names = append(names, n.value)
	}
	return names
}

func (h Host) describe() entry {
	e := entry{{"address", h.Address.String()}, {"user", h.User}, {"key", h.Key}}
	e = e.list("host key", h.HostKeys, describeKey)
	e = e.list("host authority", h.HostCAs, describeKey)
	if len(h.HostCAs) > 0 {
		names := h.HostNames
		if len(names) == 0 {
			names = []string{h.Address.Host}
		}
		e = append(e, field{"certified as", strings.Join(names, ", ")})
	}
	e = e.list("revoked", h.Revoked, describeKey)
	if len(h.Jump) > 0 {
		e = append(e, field{"jump", strings.Join(h.Jump, " → ")})
	}
	if h.Keepalive > 0 {
		s := h.Keepalive.String()
		if whole, ok := strings.CutSuffix(s, "m0s"); ok { // as it is written in the file
			s = whole + "m"
		}
		e = append(e, field{"keepalive", s})
	}
	e = e.list("environment", h.Env, func(s string) string { return "agents may set " + s })
	return e.flag("private", h.Private, "may lie in a private network")
}

// describeKey shows a listed key with its fingerprint, which is what people
// compare.
func describeKey(line string) string {
	return line + " (" + cmp.Or(Fingerprint(line), "not a key") + ")"
}

// Fingerprint is the SHA-256 fingerprint of a listed key, as ssh-keygen writes
// it.
func Fingerprint(line string) string {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return ""
	}
	return ssh.FingerprintSHA256(key)
}
