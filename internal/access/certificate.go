package access

import (
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// readCertificate reads the user certificate that goes with an ssh-key: it is
// public, and so it stands in the file. Whether it is for the stored key shows
// when the key is used.
func readCertificate(t *table) string {
	s, ok := t.optional("certificate")
	if !ok {
		return ""
	}
	c, why := parseCertificate(s)
	if why != "" {
		t.problem("certificate", "%s", why)
		return ""
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(c)))
}

func parseCertificate(line string) (c *ssh.Certificate, why string) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(options) > 0 || len(rest) > 0 {
		return nil, "is not a certificate of the form 'type base64', the one line of a file …-cert.pub"
	}
	c, ok := key.(*ssh.Certificate)
	switch {
	case !ok:
		return nil, "is a public key without a certificate"
	case c.CertType != ssh.UserCert:
		return nil, "is the certificate of a host, not of a user"
	case c.Signature.Format == ssh.KeyAlgoRSA:
		return nil, "was signed with SHA-1, which hosts do not take any more"
	}
	return c, ""
}

// describeCertificate says what a person has to know of one.
func describeCertificate(line string) []field {
	c, why := parseCertificate(line)
	if why != "" {
		return []field{{"certificate", why}}
	}
	names := "any account"
	if len(c.ValidPrincipals) > 0 {
		names = clip(strings.Join(c.ValidPrincipals, ", "))
	}
	until := "without end"
	if c.ValidBefore != ssh.CertTimeInfinity {
		until = "until " + time.Unix(int64(c.ValidBefore), 0).UTC().Format(time.RFC3339)
	}
	return []field{
		{"certificate", clip(c.KeyId) + ", for " + names + ", " + until},
		{"certified by", c.SignatureKey.Type() + " " + ssh.FingerprintSHA256(c.SignatureKey)},
		{"certificate of key", ssh.FingerprintSHA256(c.Key)},
	}
}
