package macos

import (
	"fmt"
	"strings"
)

// Fields of certificates that Apple issues for programs outside its store (Code
// Signing Requirement Language; Technical Note TN3127).
const (
	fieldDeveloperIDAuthority = "field.1.2.840.113635.100.6.2.6"
	fieldDeveloperIDLeaf      = "field.1.2.840.113635.100.6.1.13"
)

// Signature is what a process's signature claims, to be proven by Requirement.
type Signature struct {
	Signer     Signer
	Identifier string // e.g. "com.example.agent"
	Team       string // ten characters, empty unless SignedByTeam
	CDHash     CDHash
}

// Requirement is the text that the live process has to satisfy to be what s
// says, in Apple's requirement language. It names the code by its directory
// hash too, so that the text that was checked is about this very program. An
// error means that nothing could be required that would prove s.
func (s Signature) Requirement() (string, error) {
	if s.CDHash == (CDHash{}) {
		return "", fmt.Errorf("%w: no code-directory hash", ErrSignature)
	}
	hash := fmt.Sprintf(`cdhash H"%s"`, s.CDHash)
	switch s.Signer {
	case SignedByNobody:
		return hash, nil
	case SignedByApple:
		id, err := quote(s.Identifier)
		if err != nil {
			return "", err
		}
		return "anchor apple and identifier " + id + " and " + hash, nil
	case SignedByTeam:
		id, err := quote(s.Identifier)
		if err != nil {
			return "", err
		}
		if !isTeam(s.Team) {
			return "", fmt.Errorf("%w: %q is no team", ErrSignature, s.Team)
		}
		return "anchor apple generic" +
			" and certificate 1[" + fieldDeveloperIDAuthority + "] exists" +
			" and certificate leaf[" + fieldDeveloperIDLeaf + "] exists" +
			` and certificate leaf[subject.OU] = "` + s.Team + `"` +
			" and identifier " + id + " and " + hash, nil
	}
	return "", fmt.Errorf("%w: signer %q", ErrUnsigned, s.Signer)
}

// maxIdentifier is longer than any signing identifier in use.
const maxIdentifier = 255

// quote makes a string constant of the requirement language. Only what signing
// identifiers are made of is let through: a text that would need an escape
// could end the constant and go on as a requirement of its own choice.
func quote(s string) (string, error) {
	if s == "" || len(s) > maxIdentifier {
		return "", fmt.Errorf("%w: an identifier of %d bytes", ErrSignature, len(s))
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._- +", r)) {
			return "", fmt.Errorf("%w: the identifier %q has a character that no requirement is built with", ErrSignature, s)
		}
	}
	return `"` + s + `"`, nil
}

// isTeam reports whether s has the form of a team id: ten capitals and digits.
func isTeam(s string) bool {
	if len(s) != 10 {
		return false
	}
	for _, r := range s {
		if !(r >= 'A' && r <= 'Z' || r >= '0' && r <= '9') {
			return false
		}
	}
	return true
}
