package sshexec

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/ssh"
)

// Certify returns a signer that shows the certificate of a user, an
// authorized-key line, in place of its bare key. An RSA key signs with SHA-2
// under a certificate too.
func Certify(s ssh.Signer, line string) (ssh.Signer, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok || cert.CertType != ssh.UserCert {
		return nil, errors.New("it is no certificate of a user")
	}
	now := time.Now()
	switch from, until := cert.ValidAfter, cert.ValidBefore; {
	case uint64(now.Unix()) < from:
		return nil, fmt.Errorf("the certificate is good from %s on", at(from))
	case until != ssh.CertTimeInfinity && uint64(now.Unix()) >= until:
		return nil, fmt.Errorf("the certificate ended at %s", at(until))
	}
	certified, err := ssh.NewCertSigner(cert, s)
	if err != nil {
		return nil, fmt.Errorf("the certificate is for the key %s, and this is %s",
			ssh.FingerprintSHA256(cert.Key), ssh.FingerprintSHA256(s.PublicKey()))
	}
	return onlyModern(certified)
}

func at(seconds uint64) string {
	return time.Unix(int64(min(seconds, 1<<40)), 0).UTC().Format(time.RFC3339)
}
