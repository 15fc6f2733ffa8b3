package access

import (
	"slices"
	"strconv"

	"github.com/yett-broker/yett/internal/action"
)

// Codes of a refusal, as the wire has them.
const (
	CodeUnknown    = "capability_unknown"
	CodeNotGranted = "capability_not_granted"
	CodeOutside    = action.CodeOutside
)

// Decision is the answer to one request. Detail is the cause, for the agent;
// it names nothing of the file but the capability.
type Decision struct {
	Allowed    bool
	Code       string
	Detail     string
	Capability *Capability // nil when unknown
}

// Decide says whether a granted capability covers a request in canonical form.
func (p *Policy) Decide(granted func(capability string) bool, r action.Request) Decision {
	c, ok := p.Capability(r.Capability)
	if !ok {
		return Decision{Code: CodeUnknown, Detail: "there is no such capability"}
	}
	if !granted(c.Name) {
		return Decision{Code: CodeNotGranted, Detail: "the capability is not granted to this session", Capability: c}
	}
	why := ""
	switch {
	case r.Kind() != c.Kind:
		why = "the capability is for " + string(c.Kind) + " actions"
	case c.Kind == action.KindHTTP:
		why = p.outsideHTTP(c, r.HTTP)
	case c.Kind == action.KindSSH:
		why = p.outsideSSH(c, r.SSH)
	default:
		why = outsideCopy(c, r.Copy)
	}
	if why != "" {
		return Decision{Code: CodeOutside, Detail: why, Capability: c}
	}
	return Decision{Allowed: true, Capability: c}
}

// outsideHTTP returns why an action is outside of a capability, or nothing.
func (p *Policy) outsideHTTP(c *Capability, h *action.HTTP) string {
	// A path that is not canonical was not made by NewHTTP: what it would match
	// is not what an upstream would serve.
	if path, refusal := action.CanonicalPath(h.Path); refusal != nil || path != h.Path {
		return "the path is not in canonical form"
	}
	if !slices.Contains(c.Methods, h.Method) {
		return "the method is not among those of the capability"
	}
	if !slices.ContainsFunc(c.Paths, func(pattern string) bool { return matchPath(pattern, h.Path) }) {
		return "the path is not among those of the capability"
	}
	cred := p.credentials[c.Credential]
	if p.isTokenEndpoint(cred.Origin, h.Path) {
		return "the path is a token endpoint, which only the broker calls"
	}
	for _, header := range h.Headers {
		if cred.ownsHeader(header.Name) {
			return "header " + header.Name + " belongs to the credential"
		}
	}
	for _, name := range h.QueryNames() {
		if cred.ownsParameter(name) {
			return "query parameter " + strconv.QuoteToASCII(name) + " belongs to the credential"
		}
		if c.Query != nil && !slices.Contains(c.Query, name) {
			return "a query parameter is not among those of the capability"
		}
	}
	return ""
}

// ownsHeader reports whether a header of an agent would stand in the place of
// the credential, in whatever spelling. Authorization and Cookie are refused
// before anything is decided.
func (c Credential) ownsHeader(name string) bool {
	switch c.Kind {
	case KindHeader:
		return action.FoldHeader(name) == action.FoldHeader(c.Header)
	case KindSigV4:
		return action.IsSigningHeader(name)
	}
	return false
}

// ownsParameter reports the same of a query parameter. RFC 6750 section 2.3
// lets a bearer token stand in the query, where it would compete with the
// broker's.
func (c Credential) ownsParameter(name string) bool {
	switch c.Kind {
	case KindQuery:
		return action.SameParameter(name, c.Parameter)
	case KindSigV4:
		return action.IsSigningParameter(name)
	case KindBearer, KindOAuthClient, KindOAuthRefresh:
		return action.SameParameter(name, "access_token")
	}
	return false
}

// isTokenEndpoint reports whether the path at an origin is where some
// credential is exchanged: what is answered there is a credential itself.
// Servers differ in whether case, a slash at the end, parameters of a segment or
// a dot or space behind it matter.
func (p *Policy) isTokenEndpoint(o Origin, path string) bool {
	path = action.FoldPath(path)
	for _, c := range p.credentials {
		if c.OAuth != nil && c.OAuth.Endpoint.Origin == o && action.FoldPath(c.OAuth.Endpoint.Path) == path {
			return true
		}
	}
	return false
}

func (p *Policy) outsideSSH(c *Capability, s *action.SSH) string {
	if !slices.ContainsFunc(c.Commands, func(pattern string) bool { return matchCommand(pattern, s.Command) }) {
		return "the command is not among those of the capability"
	}
	if s.PTY && !c.PTY {
		return "the capability gives no terminal (pty)"
	}
	for _, v := range s.Env {
		if !slices.Contains(p.hosts[c.Host].Env, v.Name) {
			return "env: the host takes no variable " + v.Name
		}
	}
	return ""
}
