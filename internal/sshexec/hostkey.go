package sshexec

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// hostKeyTypes are the keys that can be listed, of hosts and of authorities.
// A list names keys; a certificate is vouched for by one.
var hostKeyTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
}

// certificateAlgorithms are the certificates that a host is asked for where an
// authority is listed.
var certificateAlgorithms = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
	ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// HostKeyError tells which key a host presented instead of a listed one. Why is
// set where it presented a certificate that does not count, or a key that was
// revoked.
type HostKeyError struct {
	Presented string   // type and SHA-256 fingerprint
	Listed    []string // likewise
	Why       string
}

func (e *HostKeyError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("the host presented %s, which does not count: %s", e.Presented, e.Why)
	}
	return fmt.Sprintf("the host presented key %s, which is not listed for it (listed: %s)",
		e.Presented, strings.Join(e.Listed, ", "))
}

// trust is what one host may prove itself by.
type trust struct {
	keys        []ssh.PublicKey
	authorities []ssh.PublicKey
	revoked     []ssh.PublicKey
	names       []string // a certificate is for one of these
}

func newTrust(h Hop) (trust, error) {
	var t trust
	if len(h.HostKeys) == 0 && len(h.HostCAs) == 0 {
		return t, errors.New("no host key is listed")
	}
	for _, list := range []struct {
		what  string
		lines []string
		keys  *[]ssh.PublicKey
	}{{"host key", h.HostKeys, &t.keys}, {"key of an authority", h.HostCAs, &t.authorities}, {"revoked key", h.Revoked, &t.revoked}} {
		for i, line := range list.lines {
			key, err := parseListed(line)
			if err != nil {
				return t, fmt.Errorf("%s %d %w", list.what, i+1, err)
			}
			*list.keys = append(*list.keys, key)
		}
	}
	t.names = h.HostNames
	if len(t.names) == 0 {
		host, _, err := net.SplitHostPort(h.Address)
		if err != nil {
			host = h.Address // dialling it will say so
		}
		t.names = []string{host}
	}
	return t, nil
}

func parseListed(line string) (ssh.PublicKey, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(options) != 0 || len(bytes.TrimSpace(rest)) != 0:
		return nil, errors.New("is more than a type, a key and a comment")
	case !slices.Contains(hostKeyTypes, key.Type()):
		return nil, fmt.Errorf("is of type %s, which cannot be listed", key.Type())
	}
	return key, nil
}

// algorithms asks the host for what is listed only: certificates where an
// authority is, then the listed kinds of key in the order of the list, so that
// a host with several keys presents a listed one.
func (t trust) algorithms() []string {
	var algorithms []string
	if len(t.authorities) > 0 {
		algorithms = slices.Clone(certificateAlgorithms)
	}
	for _, k := range t.keys {
		names := []string{k.Type()}
		if k.Type() == ssh.KeyAlgoRSA {
			names = rsaSHA2
		}
		for _, n := range names {
			if !slices.Contains(algorithms, n) {
				algorithms = append(algorithms, n)
			}
		}
	}
	return algorithms
}

// judge accepts a key that equals a listed one byte for byte, and a certificate
// of a listed authority for this host, or of a listed key.
func (t trust) judge(presented ssh.PublicKey, now time.Time) error {
	e := &HostKeyError{Presented: describe(presented)}
	for _, k := range append(slices.Clone(t.keys), t.authorities...) {
		e.Listed = append(e.Listed, describe(k))
	}
	cert, certified := presented.(*ssh.Certificate)
	own := presented
	if certified {
		own = cert.Key
	}
	switch {
	case has(t.revoked, own):
		e.Why = "its key was revoked"
	case has(t.keys, own):
		return nil
	case !certified: // it is not listed
	default:
		if e.Why = t.vouched(cert, now); e.Why == "" {
			return nil
		}
	}
	return e
}

// vouched returns why a certificate does not vouch for this host, or nothing.
func (t trust) vouched(cert *ssh.Certificate, now time.Time) string {
	switch {
	case cert.CertType != ssh.HostCert:
		return "it is no certificate of a host"
	case has(t.revoked, cert.SignatureKey):
		return "the key of its authority was revoked"
	case !has(t.authorities, cert.SignatureKey):
		return "its authority " + describe(cert.SignatureKey) + " is not listed"
	case cert.Signature.Format == ssh.KeyAlgoRSA:
		return "it was signed with SHA-1"
	}
	checker := ssh.CertChecker{Clock: func() time.Time { return now }}
	var err error
	for _, name := range t.names {
		if err = checker.CheckCert(name, cert); err == nil {
			return ""
		}
	}
	return strings.TrimPrefix(legible(err).Error(), "ssh: ")
}

func has(keys []ssh.PublicKey, one ssh.PublicKey) bool {
	raw := one.Marshal()
	return slices.ContainsFunc(keys, func(k ssh.PublicKey) bool { return bytes.Equal(raw, k.Marshal()) })
}

// describe names a key as people compare it. A certificate is named by the key
// that it is for.
func describe(k ssh.PublicKey) string {
	if c, ok := k.(*ssh.Certificate); ok {
		return c.Type() + " " + ssh.FingerprintSHA256(c.Key)
	}
	return k.Type() + " " + ssh.FingerprintSHA256(k)
}
