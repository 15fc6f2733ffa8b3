package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Transport is what a credential says about the way to its place. Its zero
// value is the usual way.
type Transport struct {
	CA    string   // PEM of the only authorities that are believed; empty: the system's
	Pins  []string // base64 SHA-256 of a SubjectPublicKeyInfo, one of which the server must have
	Proxy Origin   // the proxy that connections are made through; zero: none
	HTTP1 bool     // HTTP/2 is not offered
}

// maxAuthorities and maxPins bound what one credential names.
const (
	maxAuthorities = 32
	maxPins        = 8
)

func readTransport(t *table, c *Credential) {
	plain := c.Origin.Scheme == "http"
	if s, ok := t.optional("ca"); ok {
		text, err := canonicalAuthorities(s)
		switch {
		case err != nil:
			t.problem("ca", "%v", err)
		case plain && !c.Minted():
			t.problem("ca", "has no meaning for an http origin")
		}
		c.Transport.CA = text
	}
	for i, s := range t.list("pin") {
		b, err := base64.StdEncoding.Strict().DecodeString(s.value)
		switch {
		case err != nil || len(b) != sha256.Size || base64.StdEncoding.EncodeToString(b) != s.value:
			t.problemAt(s.line, "pin", "is not the base64 of a SHA-256")
		case i >= maxPins:
			t.problemAt(s.line, "pin", "more than %d pins", maxPins)
		case plain:
			t.problemAt(s.line, "pin", "has no meaning for an http origin")
		}
		c.Transport.Pins = append(c.Transport.Pins, s.value)
	}
	if s, ok := t.optional("proxy"); ok {
		o, err := parseOrigin(s)
		switch {
		case err != nil:
			t.problem("proxy", "%v", err)
		case plain:
			t.problem("proxy", "needs an https origin: the proxy would read the credential")
		}
		c.Transport.Proxy = o
	}
	if _, ok := t.take("http2"); ok {
		c.Transport.HTTP1 = !t.boolean("http2")
	}
}

// canonicalAuthorities reads certificates in PEM and writes them alike.
func canonicalAuthorities(s string) (string, error) {
	var out strings.Builder
	rest, n := []byte(s), 0
	for {
		var block *pem.Block
		before := rest
		if block, rest = pem.Decode(rest); block == nil {
			if len(bytes.TrimSpace(before)) > 0 {
				return "", errors.New("is not PEM text of certificates alone")
			}
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 || !bytes.HasPrefix(bytes.TrimSpace(before), []byte("-----BEGIN")) {
			return "", errors.New("is not PEM text of certificates alone")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", fmt.Errorf("certificate %d cannot be read", n+1)
		}
		if n++; n > maxAuthorities {
			return "", fmt.Errorf("has more than %d certificates", maxAuthorities)
		}
		pem.Encode(&out, block)
	}
	if n == 0 {
		return "", errors.New("has no certificate in PEM")
	}
	return out.String(), nil
}

// describe says it in lines for a person.
func (w Transport) describe() entry {
	var e entry
	for rest := []byte(w.CA); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		name := ""
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			name = clip(cert.Subject.String())
		}
		e = append(e, field{"only authority", fmt.Sprintf("%s, SHA-256 %x", name, sha256.Sum256(block.Bytes))})
	}
	e = e.list("only key", w.Pins, func(s string) string { return s })
	if w.Proxy != (Origin{}) {
		e = append(e, field{"proxy", w.Proxy.String()})
	}
	return e.flag("http2", w.HTTP1, "not offered")
}
