package system

import (
	"errors"
	"fmt"
)

// Screen tells whether the screen of this login is locked.
type Screen struct {
	cf *foundation

	session      func() ref
	booleanType  func() uint
	booleanValue func(ref) bool
}

// CoreGraphics is the path of the framework that knows the login's screen.
const CoreGraphics = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"

// screenIsLocked is the member of the session's dictionary that is there while
// the screen is locked. No header has it; login windows have set it since 10.4.
const screenIsLocked = "CGSSessionScreenIsLocked"

func (s *Screen) bindings() []binding {
	return []binding{{"CGSessionCopyCurrentDictionary", &s.session}}
}

func (s *Screen) booleanBindings() []binding {
	return []binding{
		{"CFBooleanGetTypeID", &s.booleanType},
		{"CFBooleanGetValue", &s.booleanValue},
	}
}

// OpenScreen opens both frameworks, or stand-ins for them.
func OpenScreen(coreGraphics, coreFoundation string) (*Screen, error) {
	s := &Screen{cf: &foundation{}}
	l, err := open(coreFoundation)
	if err == nil {
		err = l.bind(append(s.cf.bindings(), s.booleanBindings()...))
	}
	if err != nil {
		return nil, err
	}
	if l, err = open(coreGraphics); err == nil {
		err = l.bind(s.bindings())
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ErrNoScreen means that this login has no windows: one over SSH, say.
var ErrNoScreen = errors.New("this login has no screen")

// Locked asks the window server.
func (s *Screen) Locked() (bool, error) {
	session := s.session()
	if session == 0 {
		return false, ErrNoScreen
	}
	defer s.cf.release(session)
	key, err := s.cf.newString(screenIsLocked)
	if err != nil {
		return false, err
	}
	defer s.cf.release(key)
	value := s.cf.dictValue(session, key)
	switch {
	case value == 0:
		return false, nil
	case s.cf.typeOf(value) == s.booleanType():
		return s.booleanValue(value), nil
	}
	n, _, err := s.cf.number(session, key)
	if err != nil {
		return false, fmt.Errorf("%s: %w", screenIsLocked, err)
	}
	return n != 0, nil
}
