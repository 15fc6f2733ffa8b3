//go:build !darwin

package selftest

import "context"

// ofPerson are the checks of what asks the person, which is of macOS.
func ofPerson() []trial {
	no := func(context.Context, *setting) (string, error) { return "", skipped("it is of macOS") }
	return []trial{{"keychain", no}, {"touch id", no}}
}
