package macos

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Operations of csops_audittoken (sys/codesign.h).
const (
	OpStatus   = 0
	OpCDHash   = 5
	OpIdentity = 11
	OpTeamID   = 14
)

// Status is the code-signing flags that the kernel keeps of a live process.
type Status uint32

// Flags of Status (kern/cs_blobs.h).
const (
	StatusValid          Status = 0x0000_0001 // the signature held for every page so far
	StatusAdHoc          Status = 0x0000_0002 // signed by nobody
	StatusGetTaskAllow   Status = 0x0000_0004 // a debugger of the account may attach
	StatusHard           Status = 0x0000_0100 // a page that does not match is not loaded
	StatusKill           Status = 0x0000_0200 // and ends the process
	StatusEnforcement    Status = 0x0000_1000 // unsigned code is not run
	StatusLibraryChecks  Status = 0x0000_2000 // libraries of the same team or of Apple only
	StatusRuntime        Status = 0x0001_0000 // hardened runtime
	StatusLinkerSigned   Status = 0x0002_0000 // signed ad hoc by the linker
	StatusPlatformBinary Status = 0x0400_0000 // part of the system
	StatusDebugged       Status = 0x1000_0000 // a debugger has changed it, or could have
	StatusSigned         Status = 0x2000_0000 // has a signature, valid or not
)

// Signer is what kind of signature a live process has.
type Signer string

// Signers, weakest last.
const (
	SignedByApple   Signer = "apple"     // a program of the system
	SignedByTeam    Signer = "developer" // Developer ID or App Store, of a team
	SignedByNobody  Signer = "ad hoc"    // only its code-directory hash says anything
	SignerUnsigned  Signer = "unsigned"
	SignerNotProven Signer = "not proven"
)

var (
	// ErrUnsigned means that the process has no signature that could name it.
	ErrUnsigned = errors.New("the program is not signed")
	// ErrSignature means that there is one and that it does not hold.
	ErrSignature = errors.New("the program's signature does not hold")
)

// Judge says what the kernel's flags and names allow to claim of a process. It
// decides whether there is anything to check; whether the signer is who the
// requirement says is checked by Security.framework afterwards. What it cannot
// place is refused.
func Judge(s Status, team string) (Signer, error) {
	switch {
	case s&StatusSigned == 0:
		return SignerUnsigned, ErrUnsigned
	case s&StatusValid == 0:
		return SignerNotProven, fmt.Errorf("%w: the kernel found a page that does not match", ErrSignature)
	case s&StatusDebugged != 0:
		return SignerNotProven, fmt.Errorf("%w: a debugger may have changed the process", ErrSignature)
	case s&StatusPlatformBinary != 0 && s&StatusAdHoc == 0:
		return SignedByApple, nil
	case s&StatusAdHoc != 0 && team != "":
		return SignerNotProven, fmt.Errorf("%w: signed ad hoc and yet of team %q", ErrSignature, team)
	case s&StatusAdHoc != 0:
		return SignedByNobody, nil
	case team != "":
		return SignedByTeam, nil
	}
	return SignerNotProven, fmt.Errorf("%w: signed, by no team and not ad hoc", ErrSignature)
}

// Words are the states that a person must read before saying yes.
func (s Status) Words() []string {
	var words []string
	if s&StatusAdHoc != 0 {
		words = append(words, "signed ad hoc: by nobody")
	}
	if s&StatusGetTaskAllow != 0 {
		words = append(words, "open to debuggers")
	}
	if s&(StatusRuntime|StatusPlatformBinary) == 0 {
		words = append(words, "no hardened runtime: libraries can be put into it")
	}
	return words
}

// CDHashSize is the size of a code-directory hash in bytes: the first 20 of
// the digest, whatever its kind.
const CDHashSize = 20

// CDHash names code by the hash of its code directory.
type CDHash [CDHashSize]byte

// ParseCDHash reads what csops returns. A hash of zeros names nothing.
func ParseCDHash(b []byte) (CDHash, error) {
	var h CDHash
	if len(b) != CDHashSize {
		return h, fmt.Errorf("a code-directory hash has %d bytes, want %d", len(b), CDHashSize)
	}
	copy(h[:], b)
	if h == (CDHash{}) {
		return h, fmt.Errorf("%w: its code-directory hash is all zeros", ErrSignature)
	}
	return h, nil
}

func (h CDHash) String() string { return hex.EncodeToString(h[:]) }

// nameHeader is the size of what stands before the text that csops returns for
// an identity or a team: four zero bytes and the length of the whole, big-endian.
const nameHeader = 8

// ParseName reads an identity or a team id as csops returns it. b is the whole
// buffer, of which the kernel may have filled less.
func ParseName(b []byte) (string, error) {
	if len(b) < nameHeader {
		return "", fmt.Errorf("a signing name of %d bytes", len(b))
	}
	n := binary.BigEndian.Uint32(b[4:])
	if n < nameHeader+1 || uint64(n) > uint64(len(b)) {
		return "", fmt.Errorf("a signing name that says it has %d bytes, of %d", n, len(b))
	}
	body := b[nameHeader:n]
	if end := bytes.IndexByte(body, 0); end != len(body)-1 { // one zero, at its end
		return "", errors.New("a signing name with a zero byte inside")
	}
	return string(body[:len(body)-1]), nil
}
