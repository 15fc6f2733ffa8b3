package system

import (
	"fmt"
	"unsafe"

	"github.com/yett-broker/yett/internal/macos"
)

// Flags of Security.framework's calls (SecCode.h, CSCommon.h).
const (
	defaultFlags       = 0
	dynamicInformation = 1 << 3 // kSecCSDynamicInformation: with the kernel's status
	signingInformation = 1 << 1 // kSecCSSigningInformation
)

// Code asks Security.framework about live code.
type Code struct {
	cf *foundation

	copyGuest         func(host, attributes ref, flags uint32, guest *ref) int32
	checkValidity     func(code ref, flags uint32, requirement ref) int32
	createRequirement func(text ref, flags uint32, requirement *ref) int32
	copyInformation   func(code ref, flags uint32, info *ref) int32

	guestAudit, infoIdentifier, infoTeam, infoUnique, infoStatus uintptr // addresses of constants
}

func (c *Code) bindings() []binding {
	return []binding{
		{"SecCodeCopyGuestWithAttributes", &c.copyGuest},
		{"SecCodeCheckValidity", &c.checkValidity},
		{"SecRequirementCreateWithString", &c.createRequirement},
		{"SecCodeCopySigningInformation", &c.copyInformation},
		{"kSecGuestAttributeAudit", &c.guestAudit},
		{"kSecCodeInfoIdentifier", &c.infoIdentifier},
		{"kSecCodeInfoTeamIdentifier", &c.infoTeam},
		{"kSecCodeInfoUnique", &c.infoUnique},
		{"kSecCodeInfoStatus", &c.infoStatus},
	}
}

// OpenCode opens both frameworks, or stand-ins for them.
func OpenCode(coreFoundation, security string) (*Code, error) {
	l, err := open(coreFoundation)
	if err != nil {
		return nil, err
	}
	c := &Code{cf: &foundation{}}
	if err := l.bind(c.cf.bindings()); err != nil {
		return nil, err
	}
	if l, err = open(security); err != nil {
		return nil, err
	}
	if err := l.bind(c.bindings()); err != nil {
		return nil, err
	}
	return c, nil
}

// StatusError is an OSStatus of Security.framework: errSecCSReqFailed (-67050)
// for code that does not satisfy a requirement, errSecCSUnsigned (-67062), and
// others in CSCommon.h.
type StatusError struct {
	Call string
	Code int32
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s: OSStatus %d", e.Call, e.Code) }

// StatusRequirementFailed is the code of what does not satisfy its requirement.
const StatusRequirementFailed = -67050

func status(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &StatusError{call, code}
}

// constant reads a constant of the framework, a reference in a variable.
func constant(address uintptr) ref { return **(**ref)(unsafe.Pointer(&address)) }

// Prove finds the live code of a token and checks that its signature holds and
// that it satisfies the requirement. It returns what the signature then says.
// The requirement is never the code's own.
func (c *Code) Prove(t macos.Token, requirement string) (macos.Status, macos.Signature, error) {
	guest, err := c.guest(t)
	if err != nil {
		return 0, macos.Signature{}, err
	}
	defer c.cf.release(guest)
	text, err := c.cf.newString(requirement)
	if err != nil {
		return 0, macos.Signature{}, err
	}
	defer c.cf.release(text)
	var wanted ref
	if err := status("SecRequirementCreateWithString", c.createRequirement(text, defaultFlags, &wanted)); err != nil {
		return 0, macos.Signature{}, err
	}
	if wanted == 0 {
		return 0, macos.Signature{}, errNoMemory // a check without a requirement would pass
	}
	defer c.cf.release(wanted)
	if err := status("SecCodeCheckValidity", c.checkValidity(guest, defaultFlags, wanted)); err != nil {
		return 0, macos.Signature{}, err
	}
	return c.information(guest)
}

func (c *Code) guest(t macos.Token) (ref, error) {
	data, err := c.cf.newData(t[:])
	if err != nil {
		return 0, err
	}
	defer c.cf.release(data)
	attributes, err := c.cf.newDictionary(entry{constant(c.guestAudit), data})
	if err != nil {
		return 0, err
	}
	defer c.cf.release(attributes)
	var guest ref
	if err := status("SecCodeCopyGuestWithAttributes", c.copyGuest(0, attributes, defaultFlags, &guest)); err != nil {
		return 0, err
	}
	if guest == 0 {
		return 0, errNoMemory
	}
	return guest, nil
}

func (c *Code) information(guest ref) (macos.Status, macos.Signature, error) {
	var info ref
	if err := status("SecCodeCopySigningInformation", c.copyInformation(guest, signingInformation|dynamicInformation, &info)); err != nil {
		return 0, macos.Signature{}, err
	}
	if info == 0 {
		return 0, macos.Signature{}, errNoMemory
	}
	defer c.cf.release(info)
	var s macos.Signature
	var err error
	if s.Identifier, err = c.cf.text(info, constant(c.infoIdentifier)); err != nil {
		return 0, macos.Signature{}, fmt.Errorf("the identifier: %w", err)
	}
	if s.Team, err = c.cf.text(info, constant(c.infoTeam)); err != nil {
		return 0, macos.Signature{}, fmt.Errorf("the team: %w", err)
	}
	unique, err := c.cf.data(info, constant(c.infoUnique))
	if err != nil {
		return 0, macos.Signature{}, fmt.Errorf("the code-directory hash: %w", err)
	}
	if s.CDHash, err = macos.ParseCDHash(unique); err != nil {
		return 0, macos.Signature{}, err
	}
	flags, ok, err := c.cf.number(info, constant(c.infoStatus))
	if err != nil {
		return 0, macos.Signature{}, fmt.Errorf("the status: %w", err)
	}
	if !ok { // only live code has one
		return 0, macos.Signature{}, fmt.Errorf("%w: no status of a live process", macos.ErrSignature)
	}
	s.Signer, err = macos.Judge(macos.Status(flags), s.Team)
	return macos.Status(flags), s, err
}

// Identify is everything that macOS says about the program of a live process,
// proven: the kernel's flags and names, a requirement built from them, the
// framework's word that the live code satisfies it, and both telling the same.
func Identify(k *Kernel, c *Code, t macos.Token) (macos.Status, macos.Signature, error) {
	flags, claimed, err := k.Signature(t)
	if err != nil {
		return flags, macos.Signature{}, err
	}
	requirement, err := claimed.Requirement()
	if err != nil {
		return flags, macos.Signature{}, err
	}
	_, proven, err := c.Prove(t, requirement)
	if err != nil {
		return flags, macos.Signature{}, err
	}
	if proven != claimed {
		return flags, macos.Signature{}, fmt.Errorf("%w: the kernel says %+v, the framework %+v", macos.ErrSignature, claimed, proven)
	}
	return flags, proven, nil
}
