package access

import (
	"regexp"
	"slices"
	"strings"

	"github.com/yett-broker/yett/internal/action"
)

// How an OAuth client proves itself to its token endpoint.
const (
	AuthBasic = "basic" // RFC 6749 section 2.3.1: HTTP Basic
	AuthPost  = "post"  // client_id and client_secret in the form
	AuthNone  = "none"  // a public client: client_id alone
)

// OAuth is where and how access tokens are minted for a credential of kind
// oauth2-client or oauth2-refresh.
type OAuth struct {
	Endpoint Endpoint
	ClientID string
	Secret   string // the name of a client-secret; empty: none, or the value itself (oauth2-client)
	Auth     string
	Scopes   []string
	Audience string
}

// Endpoint is the one URL that a value is exchanged at.
type Endpoint struct {
	Origin
	Path string // in canonical form
}

func (e Endpoint) String() string {
	if e == (Endpoint{}) {
		return ""
	}
	return e.Origin.String() + e.Path
}

// Minted reports whether what is sent to the origin is a token that the value
// is exchanged for, and not the value.
func (c Credential) Minted() bool { return c.Kind == KindOAuthClient || c.Kind == KindOAuthRefresh }

// HasOrigin reports whether capabilities of kind http may name the credential.
func (c Credential) HasOrigin() bool { return c.Kind != KindSSHKey && c.Kind != KindClientSecret }

// readers read what stands in the table of a credential besides its kind.
var readers = map[string]func(b *builder, t *table, c *Credential){
	KindBearer: func(_ *builder, t *table, c *Credential) { readWay(t, c) },
	KindHeader: func(_ *builder, t *table, c *Credential) {
		c.Header, c.Prefix = readHeader(t)
		readWay(t, c)
	},
	KindBasic: func(_ *builder, t *table, c *Credential) {
		c.User = readUser(t)
		readWay(t, c)
	},
	KindQuery: func(_ *builder, t *table, c *Credential) {
		c.Parameter = readParameter(t)
		readWay(t, c)
	},
	KindCookie: func(_ *builder, t *table, c *Credential) {
		c.Cookie = readCookie(t)
		readWay(t, c)
	},
	KindSigV4: func(_ *builder, t *table, c *Credential) {
		c.Service, c.Region = readScope(t, "service"), readScope(t, "region")
		readWay(t, c)
	},
	KindOAuthClient:  readOAuth,
	KindOAuthRefresh: readOAuth,
	KindClientSecret: func(_ *builder, t *table, _ *Credential) {
		if _, ok := t.take("origin"); ok {
			t.problem("origin", "a client-secret has no origin: its place is the token endpoint of the credentials that name it")
		}
	},
	KindSSHKey: func(_ *builder, t *table, c *Credential) {
		c.Certificate = readCertificate(t)
		if _, ok := t.take("origin"); ok {
			t.problem("origin", "an ssh-key has no origin: its place is the hosts that name it")
		}
	},
}

func (b *builder) credential(t *table) {
	checkName(t)
	kind, ok := t.required("kind")
	if !ok {
		return
	}
	read, ok := readers[kind]
	if !ok {
		t.problem("kind", "unknown kind")
		return // its other keys are not known here
	}
	c := Credential{Name: t.name(), Kind: kind}
	read(b, t, &c)
	t.finish()
	b.policy.credentials[c.Name] = c
}

// maxPrefix is longer than any scheme or parameter name before a value.
const maxPrefix = 32

// readHeader reads where a credential of kind header stands.
func readHeader(t *table) (name, prefix string) {
	if s, ok := t.required("header"); ok {
		canonical, why := action.CredentialHeader(s)
		if why != "" {
			t.problem("header", "%s", why)
		}
		name = canonical
	}
	prefix, _ = t.optional("prefix")
	switch {
	case len(prefix) > maxPrefix:
		t.problem("prefix", "is longer than %d characters", maxPrefix)
	case strings.HasPrefix(prefix, " "), !isVisible(prefix):
		t.problem("prefix", "is visible ASCII and does not begin with a space")
	}
	return name, prefix
}

func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

const maxUser = 128

// readUser reads the user of HTTP Basic, where the value is the password alone.
func readUser(t *table) string {
	user, ok := t.optional("user")
	switch {
	case !ok:
	case user == "":
		t.problem("user", "must not be empty; leave it out if the value is 'user:password'")
	case strings.Contains(user, ":"):
		t.problem("user", "has a colon, which ends a user name of HTTP Basic")
	case len(user) > maxUser, strings.ContainsFunc(user, isControl):
		t.problem("user", "has a control character or is longer than %d bytes", maxUser)
	}
	return user
}

func isControl(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 }

var (
	parameterForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	cookieForm    = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	scopeForm     = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

func readParameter(t *table) string {
	s, ok := t.required("parameter")
	if !ok {
		return ""
	}
	if !parameterForm.MatchString(s) {
		t.problem("parameter", "is not a parameter name of letters, digits, '.', '_' and '-'")
	} else if _, r := action.NewHTTP(action.HTTPInput{Method: "GET", Path: "/", Query: map[string][]string{s: {""}}}); r != nil {
		t.problem("parameter", "%s", r.Detail)
	}
	return s
}

func readCookie(t *table) string {
	s, ok := t.required("cookie")
	if ok && !cookieForm.MatchString(s) {
		t.problem("cookie", "is not the name of a cookie")
	}
	return s
}

// readScope reads a part of the scope that SigV4 signatures are made for.
func readScope(t *table, key string) string {
	s, ok := t.required(key)
	if ok && !scopeForm.MatchString(s) {
		t.problem(key, "is not a name of lower case letters, digits and '-', such as %q or %q", "s3", "eu-central-1")
	}
	return s
}

// readWay reads the origin of a credential, and what the way to it is like.
func readWay(t *table, c *Credential) {
	c.Insecure = t.boolean("insecure")
	c.Private = t.boolean("private")
	if text, ok := t.required("origin"); ok {
		c.Origin = readOrigin(t, text, c.Insecure)
		c.Private = c.Private || namesPrivate(c.Origin.Host)
		c.place = c.Origin.String()
	}
	readTransport(t, c)
}

func readOrigin(t *table, s string, insecure bool) Origin {
	o, err := parseOrigin(s)
	switch {
	case err != nil:
		t.problem("origin", "%v", err)
	case o.Scheme == "http" && !o.Loopback() && !insecure:
		t.problem("origin", "plain http to other than loopback needs insecure = true")
	case o.Scheme == "https" && insecure:
		t.problem("insecure", "has no meaning for an https origin")
	}
	return o
}

var (
	clientForm = regexp.MustCompile(`^[!-~]{1,256}$`)
	tokenForm  = regexp.MustCompile(`^[!#-\[\]-~]{1,128}$`) // scope-token of RFC 6749
)

// maxScopes is more than any API has.
const maxScopes = 64

func readOAuth(b *builder, t *table, c *Credential) {
	readWay(t, c)
	o := &OAuth{}
	c.OAuth = o
	if s, ok := t.required("token_endpoint"); ok {
		o.Endpoint = readEndpoint(t, s)
		c.place = c.Origin.String() + " token " + o.Endpoint.String()
	}
	if s, ok := t.required("client_id"); ok {
		if !clientForm.MatchString(s) {
			t.problem("client_id", "is not visible ASCII of at most 256 characters")
		}
		o.ClientID = s
		c.place += " client " + s
	}
	for i, s := range t.list("scopes") {
		if !tokenForm.MatchString(s.value) || i >= maxScopes {
			t.problemAt(s.line, "scopes", "is not a scope, or there are more than %d", maxScopes)
		}
		o.Scopes = append(o.Scopes, s.value)
	}
	if s, ok := t.optional("audience"); ok {
		if !clientForm.MatchString(s) {
			t.problem("audience", "is not visible ASCII of at most 256 characters")
		}
		o.Audience = s
	}
	if c.Kind == KindOAuthRefresh {
		readClientSecret(b, t, o)
	}
	o.Auth = readAuth(t, c)
}

// readClientSecret reads the name of the second value that a confidential
// client of kind oauth2-refresh has.
func readClientSecret(b *builder, t *table, o *OAuth) {
	s, ok := t.optional("client_secret")
	if !ok {
		return
	}
	b.reference(t, "client_secret", "credential", s)
	o.Secret = s
}

func readAuth(t *table, c *Credential) string {
	usual, public := AuthBasic, c.Kind == KindOAuthRefresh && c.OAuth.Secret == ""
	if public {
		usual = AuthNone
	}
	s, ok := t.optional("auth")
	switch {
	case !ok:
		return usual
	case s != AuthBasic && s != AuthPost && s != AuthNone:
		t.problem("auth", `must be "basic", "post" or "none"`)
	case public && s != AuthNone:
		t.problem("auth", "needs client_secret, the name of a credential of kind client-secret")
	case !public && s == AuthNone:
		t.problem("auth", `"none" is for clients without a secret`)
	}
	return s
}

// readEndpoint reads an https URL, or one of http on this machine.
func readEndpoint(t *table, s string) Endpoint {
	scheme, rest, _ := strings.Cut(s, "://")
	host, path, _ := strings.Cut(rest, "/")
	o, err := parseOrigin(scheme + "://" + host)
	canonical, refusal := action.CanonicalPath("/" + path)
	switch {
	case err != nil:
		t.problem("token_endpoint", "%v", err)
	case o.Scheme == "http" && !o.Loopback():
		t.problem("token_endpoint", "plain http goes to loopback only")
	case refusal != nil:
		t.problem("token_endpoint", "%s", refusal.Detail)
	case canonical != "/"+path:
		t.problem("token_endpoint", "the path must be written as %s", clip(canonical))
	case len(path) > 1024:
		t.problem("token_endpoint", "is longer than 1024 bytes")
	}
	return Endpoint{Origin: o, Path: canonical}
}

// secretPlaces settles where each client-secret goes, now that all credentials
// are known: to one token endpoint.
func (b *builder) secretPlaces(tables []*table) {
	for _, t := range tables {
		c, ok := b.policy.credentials[t.name()]
		switch {
		case !ok:
		case c.OAuth != nil && c.OAuth.Secret != "":
			if named, ok := b.policy.credentials[c.OAuth.Secret]; ok && named.Kind != KindClientSecret {
				t.problem("client_secret", "credential %s is not of kind client-secret", c.OAuth.Secret)
			}
		case c.Kind == KindClientSecret:
			places := b.endpointsOf(c.Name)
			switch len(places) {
			case 1:
				c.place = places[0]
			case 0:
				t.problem("", "no credential names this client-secret, so that it has no place")
			default:
				t.problem("", "this client-secret would go to more than one client or token endpoint")
			}
			b.policy.credentials[c.Name] = c
		}
	}
}

// endpointsOf returns where the credentials that name a client-secret send it.
func (b *builder) endpointsOf(secret string) []string {
	var places []string
	for _, c := range b.policy.credentials {
		if c.OAuth != nil && c.OAuth.Secret == secret {
			places = append(places, "token "+c.OAuth.Endpoint.String()+" client "+c.OAuth.ClientID)
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}
