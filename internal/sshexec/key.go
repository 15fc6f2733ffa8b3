package sshexec

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
	"golang.org/x/crypto/ssh"
)

// KeyReason is why a secret is not a usable private key.
type KeyReason string

const (
	KeyEmpty       KeyReason = "empty"
	KeyEncrypted   KeyReason = "encrypted"
	KeyPublic      KeyReason = "public"      // the public part was given
	KeyDamaged     KeyReason = "damaged"     // cut off, altered, or not a key at all
	KeyUnsupported KeyReason = "unsupported" // a key, but of a form or kind that is not used here
	KeyHardware    KeyReason = "hardware"    // its private part is in a security key
	KeySeveral     KeyReason = "several"     // more than one private key
	KeyPassphrase  KeyReason = "passphrase"  // the passphrase does not open it
	KeyCostly      KeyReason = "costly"      // it asks for more work than is done for a key file
)

var keySentences = map[KeyReason]string{
	KeyEmpty:       "the private key is empty",
	KeyEncrypted:   "the private key is encrypted with a passphrase",
	KeyPublic:      "this is a public key, not a private one",
	KeyDamaged:     "the private key is damaged or incomplete",
	KeyUnsupported: "the private key is of an unsupported form or kind",
	KeyHardware:    "the private part of this key is in a security key (FIDO), and the file only names it; the broker cannot use it",
	KeySeveral:     "there is more than one private key",
	KeyPassphrase:  "the passphrase is wrong (or the encrypted part was altered)",
	KeyCostly:      "opening the private key asks for more rounds or memory than are spent on a key file",
}

// KeyError tells why a secret is not a usable private key, in fixed words: it
// never holds a part of the secret.
type KeyError struct{ Reason KeyReason }

func (e *KeyError) Error() string { return keySentences[e.Reason] }

// ParseKey reads one unencrypted private key: OpenSSH, PKCS #8, PKCS #1 or
// SEC 1 in PEM, of kind Ed25519, ECDSA (P-256, P-384, P-521) or RSA. An RSA
// signer signs with SHA-2 only. Every error is a *KeyError.
func ParseKey(secret []byte) (ssh.Signer, error) {
	text := bytes.TrimPrefix(secret, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, &KeyError{KeyEmpty}
	}
	own, err := solePrivateBlock(text)
	if err != nil {
		return nil, err
	}
	raw, err := ssh.ParseRawPrivateKey(own)
	if err != nil {
		return nil, &KeyError{parseReason(err)}
	}
	if !consistent(raw) || !ownPublicPart(own, raw) {
		return nil, &KeyError{KeyDamaged}
	}
	s, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		return nil, &KeyError{KeyUnsupported}
	}
	if s, err = onlyModern(s); err != nil {
		return nil, &KeyError{KeyUnsupported}
	}
	return s, nil
}

// solePrivateBlock returns text from where its one private key begins. OpenSSL
// puts curve parameters before an EC key; these are passed over.
func solePrivateBlock(text []byte) ([]byte, error) {
	var own []byte
	for rest := text; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		reason, private := blockReason(block)
		clear(block.Bytes)
		switch {
		case reason != "":
			return nil, &KeyError{reason}
		case private && own != nil:
			return nil, &KeyError{KeySeveral}
		case private:
			own = rest
		}
		rest = after
	}
	if own == nil {
		return nil, &KeyError{textReason(text)}
	}
	return own, nil
}

func blockReason(b *pem.Block) (reason KeyReason, private bool) {
	switch b.Type {
	case "OPENSSH PRIVATE KEY":
		if ofSecurityKey(b.Bytes) {
			return KeyHardware, true
		}
		return "", true
	case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY":
		return "", true
	case "ENCRYPTED PRIVATE KEY":
		return KeyEncrypted, true
	case "PUBLIC KEY", "RSA PUBLIC KEY", "EC PUBLIC KEY", "CERTIFICATE":
		return KeyPublic, false
	case "EC PARAMETERS":
		return "", false
	}
	return KeyUnsupported, false
}

// ofSecurityKey reports whether a key of OpenSSH's form is one of those whose
// signatures a security key makes, with a touch for each.
func ofSecurityKey(file []byte) bool {
	body, ok := bytes.CutPrefix(file, []byte(openSSHMagic))
	var f openSSHFile
	var public struct {
		Kind string
		Rest []byte `ssh:"rest"`
	}
	return ok && ssh.Unmarshal(body, &f) == nil && ssh.Unmarshal(f.Public, &public) == nil && strings.HasPrefix(public.Kind, "sk-")
}

// textReason judges text in which no PEM block can be read.
func textReason(text []byte) KeyReason {
	if _, _, _, _, err := ssh.ParseAuthorizedKey(text); err == nil {
		return KeyPublic
	}
	switch {
	case bytes.Contains(text, []byte("BEGIN SSH2 PUBLIC KEY")):
		return KeyPublic
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("PuTTY-User-Key-File")),
		bytes.Contains(text, []byte("BEGIN SSH2 ENCRYPTED PRIVATE KEY")):
		return KeyUnsupported
	}
	return KeyDamaged
}

// parseReason sorts an error of ssh.ParseRawPrivateKey without handing it on,
// for its text may come from the secret.
func parseReason(err error) KeyReason {
	var missing *ssh.PassphraseMissingError
	if errors.As(err, &missing) {
		return KeyEncrypted
	}
	for _, unsupported := range []string{"unhandled", "unsupported", "unknown", "multi-key"} {
		if bytes.Contains([]byte(err.Error()), []byte(unsupported)) {
			return KeyUnsupported
		}
	}
	return KeyDamaged
}

// consistent reports whether an Ed25519 key's two halves belong together;
// signing with halves that do not would give the key away. The other kinds
// are checked by their parsers.
func consistent(raw any) bool {
	var key ed25519.PrivateKey
	switch k := raw.(type) {
	case *ed25519.PrivateKey:
		key = *k
	case ed25519.PrivateKey:
		key = k
	case *rsa.PrivateKey:
		return k.Validate() == nil
	default:
		return true
	}
	return bytes.Equal(ed25519.NewKeyFromSeed(key.Seed()), key)
}

// ownPublicPart compares an ECDSA key with the public part that stands beside it
// in PKCS #8 and SEC 1, which their parser leaves out of account. Encrypted PKCS #8
// is not authenticated: without this a changed byte would make another key.
func ownPublicPart(text []byte, raw any) bool {
	key, ok := raw.(*ecdsa.PrivateKey)
	block, _ := pem.Decode(text)
	if !ok || block == nil {
		return true
	}
	defer clear(block.Bytes)
	der := cryptobyte.String(block.Bytes)
	context := func(n uint8) asn1.Tag { return asn1.Tag(n).ContextSpecific() }
	if block.Type == "PRIVATE KEY" { // RFC 5958
		var outer cryptobyte.String
		if !der.ReadASN1(&outer, asn1.SEQUENCE) || !outer.SkipASN1(asn1.INTEGER) || !outer.SkipASN1(asn1.SEQUENCE) ||
			!outer.ReadASN1(&der, asn1.OCTET_STRING) || !outer.SkipOptionalASN1(context(0).Constructed()) || !outer.SkipOptionalASN1(context(1)) || !outer.Empty() {
			return false
		}
	} else if block.Type != "EC PRIVATE KEY" {
		return true // OpenSSH's own form, whose parser compares
	}
	var sec1, beside cryptobyte.String // RFC 5915
	var there bool
	if !der.ReadASN1(&sec1, asn1.SEQUENCE) || !sec1.SkipASN1(asn1.INTEGER) || !sec1.SkipASN1(asn1.OCTET_STRING) ||
		!sec1.SkipOptionalASN1(context(0).Constructed()) || !sec1.ReadOptionalASN1(&beside, &there, context(1).Constructed()) || !sec1.Empty() {
		return false
	}
	var bits []byte
	if there && !beside.ReadASN1BitStringAsBytes(&bits) {
		return false
	}
	public, err := key.PublicKey.Bytes()
	return !there || err == nil && bytes.Equal(public, bits)
}
