package httpexec

import (
	"errors"
	"strconv"
	"strings"

	"github.com/yett-broker/yett/internal/action"
)

// minSecret is the shortest credential whose echoes can be told from chance.
const minSecret = 8

// check refuses a credential that a header cannot carry unchanged. A stored
// line break would end the header; the text must not say what stands around it.
func (c Credential) check() error {
	switch {
	case c.Kind == "header" && (!isToken(c.Header) || !isPrefix(c.Prefix)):
		return notSent(errors.New("the header of the credential is not one that is sent"))
	case c.Kind != "bearer" && c.Kind != "header":
		return notSent(errors.New("the kind of the credential is not known here"))
	}
	if len(c.Secret) < minSecret {
		return notSent(errors.New("the stored credential is too short"))
	}
	for _, b := range c.Secret {
		if b < 0x20 || b >= 0x7f { // no token has these: they come with copy and paste
			return notSent(errors.New("the stored credential has a line break, control character or character beyond ASCII in it"))
		}
	}
	if c.Secret[0] == ' ' || c.Secret[len(c.Secret)-1] == ' ' {
		return notSent(errors.New("the stored credential begins or ends with a space"))
	}
	return nil
}

// place is the header that carries the credential, and what stands before it.
func (c Credential) place() (header, prefix string) {
	if c.Kind == "bearer" {
		return "Authorization", "Bearer "
	}
	return c.Header, c.Prefix
}

func isPrefix(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// fixedHeaders are those that an agent may not set: they frame the message,
// name the host, carry the credential, change what the upstream takes the
// method or path to be, or cut an echo into pieces too small to be found.
var fixedHeaders = map[string]bool{
	"host": true, "connection": true, "proxy-connection": true, "keep-alive": true,
	"te": true, "trailer": true, "transfer-encoding": true, "content-length": true,
	"upgrade": true, "http2-settings": true, "expect": true,
	"authorization": true, "proxy-authorization": true,
	"range":         true,
	"x-http-method": true, "x-http-method-override": true, "x-method-override": true,
	"x-original-url": true, "x-rewrite-url": true,
}

// checkRequest refuses what has no place in a canonical action. The access
// rules refuse the same earlier and with better words; here it guards the wire.
func checkRequest(r action.HTTP, c Credential) error {
	own, _ := c.place()
	if !isToken(r.Method) || r.Method == "CONNECT" || r.Method == "TRACE" {
		return outside("the method is not one that is sent")
	}
	if !strings.HasPrefix(r.Path, "/") || strings.ContainsAny(r.Path, "?\\") || !isTarget(r.Path) {
		return outside("the path is not in canonical form")
	}
	if !isTarget(r.Query) {
		return outside("the query is not in canonical form")
	}
	for _, h := range r.Headers {
		if !isToken(h.Name) {
			return outside("a header name is not a token")
		}
		// Some servers read an underscore in a header name as a hyphen.
		if folded := action.FoldHeader(h.Name); fixedHeaders[folded] || folded == action.FoldHeader(own) {
			return outside("header " + h.Name + " is not set by agents")
		}
		for i := range len(h.Value) {
			if c := h.Value[i]; c < 0x20 && c != '\t' || c == 0x7f {
				return outside("the value of header " + h.Name + " has a control character in it")
			}
		}
	}
	return nil
}

// isTarget reports whether s may stand in a request line.
func isTarget(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// message returns the request as it goes over the wire, without the body. It
// holds the secret: the caller wipes it. room is spare capacity for a body.
func message(t Target, c Credential, r action.HTTP, room int) []byte {
	size := 256 + len(r.Method) + len(r.Path) + len(r.Query) + len(t.Host) + len(c.Header) + len(c.Prefix) + len(c.Secret) + room
	for _, h := range r.Headers {
		size += len(h.Name) + len(h.Value) + 4
	}
	b := make([]byte, 0, size) // never grown: a grown buffer leaves a copy of the secret
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.Path...)
	if r.Query != "" {
		b = append(b, '?')
		b = append(b, r.Query...)
	}
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendHeader(b, "Host", t.authority())
	agent := false
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, "Accept-Encoding") {
			continue // what we cannot decode we could not scrub
		}
		agent = agent || strings.EqualFold(h.Name, "User-Agent")
		b = appendHeader(b, h.Name, h.Value)
	}
	if !agent {
		b = appendHeader(b, "User-Agent", "yett")
	}
	if r.Method == "HEAD" {
		b = appendHeader(b, "Accept-Encoding", "identity")
	} else {
		b = appendHeader(b, "Accept-Encoding", "gzip")
	}
	header, prefix := c.place()
	b = append(b, header...)
	b = append(b, ": "...)
	b = append(b, prefix...)
	b = append(b, c.Secret...)
	b = append(b, "\r\n"...)
	if len(r.Body) > 0 || r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH" {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(r.Body)), 10)
		b = append(b, "\r\n"...)
	}
	if !isSafe(r.Method) {
		b = appendHeader(b, "Connection", "close")
	}
	return append(b, "\r\n"...)
}

func appendHeader(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}
