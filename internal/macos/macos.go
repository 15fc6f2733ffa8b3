// Package macos reads what macOS says about a process and about the code that
// it runs. It asks nothing itself: this package has the layouts, the verdicts
// and the order of the questions, as functions over bytes, so that they are
// tested on any system. The few calls into the system stand in its sub-package
// system, and in internal/peer.
//
// It trusts the kernel for audit tokens, process information and code-signing
// flags, and Security.framework for whether code satisfies a requirement. It
// does not trust a requirement that the peer brings along (its own designated
// requirement says whatever its signer wished); the texts of requirements are
// built here.
//
// Layouts, little-endian on both of Apple's present architectures:
//
//	audit_token_t         8 × uint32: auid euid egid ruid rgid pid asid pidversion
//	struct proc_bsdinfo   136 bytes, see ProcessInfo (sys/proc_info.h)
//	code signature        big-endian blobs: SuperBlob, CodeDirectory (cs_blobs.h)
package macos

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// TokenSize is the size of an audit token in bytes.
const TokenSize = 32

// Token is an audit token: the kernel's name for one process between two
// execs. Its pid version rises with each exec, so a token never comes to mean
// another program, as a pid does. Two tokens are the same if all their bytes are.
type Token [TokenSize]byte

// ErrToken means that the bytes are no audit token of an ordinary process.
var ErrToken = errors.New("no audit token of a process")

// ParseToken checks the length, and that a process is named at all: the kernel
// hands out pid 0 where nobody is at the other end.
func ParseToken(b []byte) (Token, error) {
	var t Token
	if len(b) != TokenSize {
		return t, fmt.Errorf("%w: %d bytes", ErrToken, len(b))
	}
	copy(t[:], b)
	if t.PID() <= 0 {
		return Token{}, fmt.Errorf("%w: pid %d", ErrToken, t.PID())
	}
	return t, nil
}

func (t Token) word(i int) uint32 { return binary.LittleEndian.Uint32(t[4*i:]) }

// UID is the effective user id.
func (t Token) UID() int { return int(t.word(1)) }

// GID is the effective group id.
func (t Token) GID() int { return int(t.word(2)) }

// RealUID is the real user id.
func (t Token) RealUID() int { return int(t.word(3)) }

// PID is the process id, for display and for calls that want it beside the token.
func (t Token) PID() int { return int(int32(t.word(5))) }

// Session is the audit session: one login.
func (t Token) Session() int { return int(t.word(6)) }

// Version is the pid version, which every fork and exec raises.
func (t Token) Version() uint32 { return t.word(7) }

// String names the process for a person. It holds no authority.
func (t Token) String() string { return fmt.Sprintf("pid %d, version %d", t.PID(), t.Version()) }
