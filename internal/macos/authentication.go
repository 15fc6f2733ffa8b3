package macos

import (
	"errors"
	"fmt"
	"strings"
)

// Policy says by what the person shows that they are there (LAPolicy).
type Policy int

const (
	Biometrics  Policy = 1 // Touch ID
	DeviceOwner Policy = 2 // Touch ID, an Apple Watch or the account's password
)

// maxReason bounds what stands in the system's prompt, which shows a few lines.
const maxReason = 160

// ErrQuestion means that the person cannot be asked this.
var ErrQuestion = errors.New("the person cannot be asked this")

// CheckQuestion says whether a policy and a reason may be handed to the system.
// It ends the whole process where a reason is empty, or a policy unknown to it. A
// reason is plain ASCII that draws itself, so no card's text can steer the prompt.
func CheckQuestion(p Policy, reason string) error {
	switch {
	case p != Biometrics && p != DeviceOwner:
		return fmt.Errorf("%w: policy %d", ErrQuestion, p)
	case strings.TrimSpace(reason) == "":
		return fmt.Errorf("%w: the reason is empty", ErrQuestion)
	case len(reason) > maxReason:
		return fmt.Errorf("%w: the reason has %d bytes, at most %d", ErrQuestion, len(reason), maxReason)
	case strings.ContainsFunc(reason, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("%w: the reason has a character that is no plain one", ErrQuestion)
	}
	return nil
}

// NotAuthenticated says that the person was not shown to be there, with LAError's
// code (LAError.h). No code is 0.
type NotAuthenticated struct{ Code int }

func (e *NotAuthenticated) Error() string {
	word, known := authenticationWords[e.Code]
	if !known {
		word = "it could not be asked for"
	}
	return fmt.Sprintf("Touch ID: %s (LAError %d)", word, e.Code)
}

var authenticationWords = map[int]string{
	-1:    "the finger was not recognised",
	-2:    "the prompt was cancelled",
	-3:    "the password was chosen in its place",
	-4:    "the system took the prompt away",
	-5:    "the account has no password, so there is no Touch ID",
	-6:    "there is no sensor, or it may not be used now",
	-7:    "no finger is enrolled",
	-8:    "it is locked after too many tries; the account's password unlocks it",
	-9:    "the prompt was taken back by Yett",
	-10:   "the prompt was used before",
	-11:   "no watch is near",
	-12:   "the keyboard with the sensor is not paired",
	-13:   "the keyboard with the sensor is not connected",
	-1004: "no prompt may be shown here: there is no screen of this login",
}

// KeychainError is an OSStatus of the keychain (SecBase.h).
type KeychainError struct {
	Call string
	Code int32
}

// Codes that a caller branches on.
const (
	KeychainNotFound  = -25300 // errSecItemNotFound
	KeychainDuplicate = -25299 // errSecDuplicateItem
)

func (e *KeychainError) Error() string {
	word, known := keychainWords[e.Code]
	if !known {
		word = "the keychain refused"
	}
	return fmt.Sprintf("%s: %s (OSStatus %d)", e.Call, word, e.Code)
}

// Is makes errors.Is look at the code alone.
func (e *KeychainError) Is(target error) bool {
	k, ok := target.(*KeychainError)
	return ok && k.Call == "" && k.Code == e.Code
}

var (
	// ErrNoItem: the keychain has no such item.
	ErrNoItem error = &KeychainError{Code: KeychainNotFound}
	// ErrItemThere: the keychain has such an item already.
	ErrItemThere error = &KeychainError{Code: KeychainDuplicate}
)

var keychainWords = map[int32]string{
	KeychainNotFound:  "there is no such item",
	KeychainDuplicate: "there is such an item already",
	-128:              "the person said no, or closed the prompt",
	-25293:            "this program may not read the item, or the keychain's password was wrong",
	-25308:            "the keychain would have to ask, and may not here",
	-25291:            "there is no keychain",
	-25307:            "there is no login keychain",
	-34018:            "this program lacks an entitlement",
	-50:               "a parameter was not understood",
}
