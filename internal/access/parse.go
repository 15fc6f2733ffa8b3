package access

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// Parse reads an access file. An error is always of type Problems and names
// everything that was found, by line.
func Parse(data []byte) (*Policy, error) {
	doc := readDocument(data)
	if len(doc.problems) > 0 {
		return nil, doc.sorted()
	}
	for _, key := range slices.Sorted(maps.Keys(doc.values)) {
		if !slices.Contains([]string{"credential", "host", "capability"}, key) {
			doc.add(doc.line(key), keyText(key), "unknown key")
		}
	}
	b := &builder{
		policy:   &Policy{credentials: map[string]Credential{}, hosts: map[string]Host{}, capabilities: map[string]*Capability{}},
		declared: map[string]map[string]bool{"credential": {}, "host": {}},
	}
	credentials, hosts := doc.section("credential"), doc.section("host")
	for _, t := range credentials {
		b.declared["credential"][t.name()] = true
	}
	for _, t := range hosts {
		b.declared["host"][t.name()] = true
	}
	for _, t := range credentials {
		b.credential(t)
	}
	for _, t := range hosts {
		b.host(t)
	}
	for _, t := range doc.section("capability") {
		b.capability(t)
	}
	b.ways(hosts)
	b.places(credentials)
	b.secretPlaces(credentials)
	if len(doc.problems) > 0 {
		return nil, doc.sorted()
	}
	return b.policy, nil
}

// builder fills a policy. declared has every name of the file, also those
// whose tables have problems, so that one problem is not reported as two.
type builder struct {
	policy   *Policy
	declared map[string]map[string]bool
}

var (
	nameForm       = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	capabilityForm = regexp.MustCompile(`^(http|ssh|ssh-copy):[a-z0-9][a-z0-9._:-]{0,63}$`)
	userForm       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)
	methodForm     = regexp.MustCompile("^[A-Z0-9!#$%&'+.^_`|~-]{1,32}$")
	budgetForm     = regexp.MustCompile(`^([1-9][0-9]{0,8})/([smhd])$`)
)

func (b *builder) capability(t *table) {
	form := capabilityForm.FindStringSubmatch(t.name())
	switch {
	case strings.HasPrefix(t.name(), "ssh-sign:"):
		t.problem("", "capabilities of kind ssh-sign are not supported by this release")
		return
	case form == nil:
		t.problem("", "a capability is named http:…, ssh:… or ssh-copy:…, with at most 64 of the characters a-z, 0-9, '.', '_', ':' and '-' after it")
		return
	}
	c := &Capability{Name: t.name(), Kind: action.Kind(form[1]), Repeat: t.boolean("repeat"), Confirm: ConfirmSession}
	if s, ok := t.optional("confirm"); ok {
		if s != ConfirmSession && s != ConfirmEach {
			t.problem("confirm", `must be "session" or "each"`)
		}
		c.Confirm = s
	}
	if s, ok := t.optional("budget"); ok {
		c.Budget = readBudget(t, s)
	}
	switch c.Kind {
	case action.KindHTTP:
		b.httpCapability(t, c)
	case action.KindSSH:
		b.sshCapability(t, c)
	default:
		b.copyCapability(t, c)
	}
	t.finish()
	b.policy.capabilities[c.Name] = c
}

func (b *builder) httpCapability(t *table, c *Capability) {
	if s, ok := t.required("credential"); ok {
		b.reference(t, "credential", "credential", s)
		if cred, ok := b.policy.credentials[s]; ok && !cred.HasOrigin() {
			t.problem("credential", "credential %s is of kind %s, which has no origin", s, cred.Kind)
		}
		c.Credential = s
	}
	for _, m := range t.requiredList("methods") {
		switch {
		case m.value == "TRACE" || m.value == "CONNECT" || m.value == "TRACK":
			t.problemAt(m.line, "methods", "%s is never sent", m.value)
		case !methodForm.MatchString(m.value):
			t.problemAt(m.line, "methods", "is not a method in upper case")
		}
		c.Methods = append(c.Methods, m.value)
	}
	for _, p := range t.requiredList("paths") {
		everything, err := checkPathPattern(p.value)
		checkPattern(t, "paths", p, everything, err, c.Confirm)
		c.Paths = append(c.Paths, p.value)
	}
	if names := t.list("query"); names != nil {
		c.Query = []string{}
		for _, n := range names {
			if _, r := action.NewHTTP(action.HTTPInput{Method: "GET", Path: "/", Query: map[string][]string{n.value: {""}}}); r != nil {
				t.problemAt(n.line, "query", "%s", r.Detail)
			}
			c.Query = append(c.Query, n.value)
		}
	}
}

func (b *builder) sshCapability(t *table, c *Capability) {
	if s, ok := t.required("host"); ok {
		b.reference(t, "host", "host", s)
		c.Host = s
	}
	for _, p := range t.requiredList("commands") {
		everything, err := checkCommandPattern(p.value)
		checkPattern(t, "commands", p, everything, err, c.Confirm)
		c.Commands = append(c.Commands, p.value)
	}
	c.PTY = t.boolean("pty")
}

func checkPattern(t *table, key string, p text, everything bool, err error, confirm string) {
	switch {
	case err != nil:
		t.problemAt(p.line, key, "%v", err)
	case everything && confirm != ConfirmEach:
		t.problemAt(p.line, key, `a wildcard over everything needs confirm = "each"`)
	}
}

func (b *builder) reference(t *table, key, section, name string) {
	if !b.declared[section][name] {
		t.problem(key, "there is no [%s.…] of that name", section)
	}
}

// places settles where each ssh-key goes, now that all hosts are known.
func (b *builder) places(tables []*table) {
	for _, t := range tables {
		c, ok := b.policy.credentials[t.name()]
		if !ok || c.Kind != KindSSHKey {
			continue
		}
		if c.place = sshPlace(b.policy.hosts, c.Name); c.place == "" {
			t.problem("", "no host names this key, so that it has no place")
		}
		b.policy.credentials[c.Name] = c
	}
}

func checkName(t *table) {
	if !nameForm.MatchString(t.name()) {
		t.problem("", "a name has 1 to 64 of the characters a-z, 0-9, '.', '_' and '-', and begins with a letter or digit")
	}
}

var budgetWindows = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

func readBudget(t *table, s string) *Budget {
	form := budgetForm.FindStringSubmatch(s)
	if form == nil {
		t.problem("budget", "must be a number from 1 to 999999999, '/', and one of s, m, h, d")
		return nil
	}
	n, _ := strconv.Atoi(form[1])
	return &Budget{Max: n, Window: budgetWindows[form[2]]}
}
