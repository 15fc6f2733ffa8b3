package macos

import (
	"errors"
	"strings"
	"testing"
)

// TestQuestions: what the system would end the process for, and what could steer
// its prompt, does not reach it.
func TestQuestions(t *testing.T) {
	for _, p := range []Policy{Biometrics, DeviceOwner} {
		if err := CheckQuestion(p, "approve FALCON ORCHID once"); err != nil {
			t.Error(err)
		}
	}
	for what, q := range map[string]struct {
		policy Policy
		reason string
	}{
		"no reason":         {Biometrics, ""},
		"spaces":            {Biometrics, "   "},
		"no policy":         {0, "approve"},
		"another policy":    {3, "approve"},
		"a long reason":     {Biometrics, strings.Repeat("x", maxReason+1)},
		"a line break":      {Biometrics, "approve\nall"},
		"an end":            {Biometrics, "approve\x00all"},
		"bidi":              {Biometrics, "approve \u202eeno"},
		"an escape":         {Biometrics, "approve \x1b[2J"},
		"a letter like one": {Biometrics, "аpprove"},
		"no UTF-8":          {Biometrics, "approve \xff"},
	} {
		if err := CheckQuestion(q.policy, q.reason); !errors.Is(err, ErrQuestion) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPersonErrors: each code has words and stands beside them, and errors.Is
// tells the two codes apart that are branched on.
func TestPersonErrors(t *testing.T) {
	for code, want := range map[int]string{-2: "cancelled", -8: "too many tries", -9: "taken back", -77: "could not be asked"} {
		if said := (&NotAuthenticated{code}).Error(); !strings.Contains(said, want) || !strings.Contains(said, "LAError -") {
			t.Errorf("%d: %s", code, said)
		}
	}
	gone := error(&KeychainError{"SecItemDelete", KeychainNotFound})
	if !errors.Is(gone, ErrNoItem) || errors.Is(gone, ErrItemThere) || errors.Is(&KeychainError{"SecItemAdd", -128}, ErrNoItem) {
		t.Error("the codes are mixed up")
	}
	for _, said := range []string{gone.Error(), (&KeychainError{"SecItemAdd", -7}).Error()} {
		if !strings.Contains(said, "SecItem") || !strings.Contains(said, "OSStatus -") {
			t.Error(said)
		}
	}
}
