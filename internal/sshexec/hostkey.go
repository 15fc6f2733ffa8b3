package sshexec

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// hostKeyTypes are the host keys that can be listed. Certificates are not
// among them: the list names keys, not those who vouch for keys.
var hostKeyTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
}

// HostKeyError tells which key a host presented instead of a listed one.
type HostKeyError struct {
	Presented string   // type and SHA-256 fingerprint
	Listed    []string // likewise
}

func (e *HostKeyError) Error() string {
	return fmt.Sprintf("the host presented key %s, which is not listed for it (listed: %s)",
		e.Presented, strings.Join(e.Listed, ", "))
}

func parseHostKeys(lines []string) ([]ssh.PublicKey, error) {
	if len(lines) == 0 {
		return nil, errors.New("no host key is listed")
	}
	keys := make([]ssh.PublicKey, 0, len(lines))
	for i, line := range lines {
		key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading host key %d: %w", i+1, err)
		case len(options) != 0 || len(bytes.TrimSpace(rest)) != 0:
			return nil, fmt.Errorf("host key %d is more than a type, a key and a comment", i+1)
		case !slices.Contains(hostKeyTypes, key.Type()):
			return nil, fmt.Errorf("host key %d is of type %s, which cannot be listed", i+1, key.Type())
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// hostKeyAlgorithms asks the host for the listed kinds of key only, in the
// order of the list, so that a host with several keys presents a listed one.
func hostKeyAlgorithms(keys []ssh.PublicKey) []string {
	var algorithms []string
	for _, k := range keys {
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

// exactly accepts a host key that equals a listed one byte for byte.
func exactly(keys []ssh.PublicKey) ssh.HostKeyCallback {
	return func(_ string, _ net.Addr, presented ssh.PublicKey) error {
		raw := presented.Marshal()
		for _, k := range keys {
			if bytes.Equal(raw, k.Marshal()) {
				return nil
			}
		}
		e := &HostKeyError{Presented: describe(presented)}
		for _, k := range keys {
			e.Listed = append(e.Listed, describe(k))
		}
		return e
	}
}

func describe(k ssh.PublicKey) string { return k.Type() + " " + ssh.FingerprintSHA256(k) }
