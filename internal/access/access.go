// Package access is what may be asked for: the access file, the immutable
// Policy that is read from it, and Decide, a pure function.
//
// The file is TOML, at most 1 MiB, written by the person and applied under
// proof. It names credentials and the one place each belongs to, hosts, and
// capabilities; it holds no secret. Reading it is strict: unknown, duplicate
// and case-variant keys, references to nothing, spellings that are not
// canonical and wildcards over everything are problems, each with its line.
//
// Decide trusts the Policy and the canonical form of a request (package
// action), and nothing that an agent says: the place that a credential goes to
// comes from the Policy alone.
package access

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// Kinds of credentials.
const (
	KindBearer       = "bearer"         // an HTTP bearer token, for one origin
	KindHeader       = "header"         // a value in a header of its own, for one origin
	KindBasic        = "basic"          // user and password of HTTP Basic, for one origin
	KindQuery        = "query"          // a value in a query parameter, for one origin
	KindCookie       = "cookie"         // the value of a cookie, for one origin
	KindSigV4        = "sigv4"          // an access key that signs requests (AWS Signature Version 4), for one origin
	KindOAuthClient  = "oauth2-client"  // a client's secret, exchanged for access tokens to one origin
	KindOAuthRefresh = "oauth2-refresh" // a refresh token, exchanged for access tokens to one origin
	KindClientSecret = "client-secret"  // the secret of a client that has refresh tokens, for one token endpoint
	KindSSHKey       = "ssh-key"        // a private key, for the hosts that name it
)

// How often a person is asked: once for a session, or for each action.
const (
	ConfirmSession = "session"
	ConfirmEach    = "each"
)

// Policy is an access file that was found good. It does not change.
type Policy struct {
	credentials  map[string]Credential
	hosts        map[string]Host
	capabilities map[string]*Capability
}

// Credential is a declared credential: its name, and the place that its value
// is for. The value is not here.
type Credential struct {
	Name      string
	Kind      string
	Origin    Origin    // of every kind but ssh-key and client-secret
	Insecure  bool      // plain http to other than loopback was asked for
	Private   bool      // the place may lie in a private address range
	Transport Transport // what the way to the origin is like

	// Where it stands in a request, by kind.
	Header    string // header: its canonical name
	Prefix    string // header: what stands before the value
	User      string // basic: the user; empty if the value is 'user:password'
	Parameter string // query
	Cookie    string // cookie
	Service   string // sigv4
	Region    string // sigv4
	OAuth     *OAuth // oauth2-client, oauth2-refresh; not to be changed

	Certificate string // ssh-key: the user certificate that goes with it

	place string
}

// Place is the canonical text of where the value may go, and what it is sealed
// to: 'https://host:port'; with OAuth ' token https://host:port/path client ID'
// behind it; for an ssh-key 'user@host:port' of every host that uses it, sorted
// and joined by commas.
func (c Credential) Place() string { return c.place }

// Declared is a credential as the vault needs it.
type Declared struct {
	Name, Kind, Place string
}

// Capability is something that may be granted. Which fields are set goes by
// Kind.
type Capability struct {
	Name    string
	Kind    action.Kind
	Budget  *Budget // nil: unlimited
	Confirm string
	Repeat  bool // an unresolved equal action does not stop it

	// http
	Credential string
	Methods    []string
	Paths      []string
	Query      []string // nil: every name; empty: none

	// ssh, ssh-copy
	Host string

	// ssh
	Commands []string
	PTY      bool // a command may have a terminal

	// ssh-copy
	Direction string   // action.Up, action.Down or Both
	Remote    []string // patterns of paths on the host
	Local     []string // directories of this machine
	MaxSize   int64    // of a file, in bytes
	Overwrite bool     // files that are there may be replaced
}

// Budget allows Max actions within any Window.
type Budget struct {
	Max    int
	Window time.Duration
}

func (b Budget) String() string {
	for unit, window := range budgetWindows {
		if b.Window == window {
			return strconv.Itoa(b.Max) + "/" + unit
		}
	}
	return strconv.Itoa(b.Max) + "/" + b.Window.String()
}

// Capability returns a copy of the capability of that name.
func (p *Policy) Capability(name string) (*Capability, bool) {
	c, ok := p.capabilities[name]
	if !ok {
		return nil, false
	}
	return c.clone(), true
}

// Capabilities returns copies of all capabilities, sorted by name.
func (p *Policy) Capabilities() []*Capability {
	out := make([]*Capability, 0, len(p.capabilities))
	for _, name := range slices.Sorted(maps.Keys(p.capabilities)) {
		out = append(out, p.capabilities[name].clone())
	}
	return out
}

// Credential returns the credential of that name.
func (p *Policy) Credential(name string) (Credential, bool) {
	c, ok := p.credentials[name]
	return c, ok
}

// Credentials returns all credentials, sorted by name.
func (p *Policy) Credentials() []Credential {
	return slices.SortedFunc(maps.Values(p.credentials), func(a, b Credential) int { return cmp.Compare(a.Name, b.Name) })
}

// Declared returns what the vault may hold a value for, sorted by name.
func (p *Policy) Declared() []Declared {
	var out []Declared
	for _, c := range p.Credentials() {
		out = append(out, Declared{Name: c.Name, Kind: c.Kind, Place: c.place})
	}
	return out
}

func (c *Capability) clone() *Capability {
	out := *c
	if c.Budget != nil {
		b := *c.Budget
		out.Budget = &b
	}
	out.Methods = slices.Clone(c.Methods)
	out.Paths = slices.Clone(c.Paths)
	out.Query = slices.Clone(c.Query)
	out.Commands = slices.Clone(c.Commands)
	out.Remote = slices.Clone(c.Remote)
	out.Local = slices.Clone(c.Local)
	return &out
}
