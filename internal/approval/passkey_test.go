package approval_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/yetttest"
)

const (
	origin = "http://localhost:7331"
	digest = "5f3c9d8a4e1b7c60a2d4e6f8091b3d5f7a9c1e3f5b7d9f1a3c5e7092b4d6f8a0"
	nonce  = "p_9TVFK1BRYQ3BQFSBKDRSE4SFCM"
)

var until = time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)

func TestPasskeyAnswerHolds(t *testing.T) {
	a := yetttest.NewAuthenticator(origin)
	for _, message := range [][]byte{
		approval.DecisionMessage(digest, approval.ChoiceOnce, time.Time{}, nonce),
		approval.DecisionsMessage([]string{digest, digest[1:] + "0"}, approval.ChoiceUntil, until, nonce),
		approval.ProofMessage("secret.set", []byte(`{"name":"x"}`), nonce),
	} {
		if _, err := a.Passkey().Verify(message, origin, a.Get(message)); err != nil {
			t.Errorf("%s: %v", message, err)
		}
	}
	a.Trailing = `,"other_keys_can_be_added_here":"do not compare clientDataJSON against a template. See https://goo.gl/yabPex"`
	message := approval.EnrolMessage("laptop", nonce)
	if _, err := a.Passkey().Verify(message, origin, a.Get(message)); err != nil {
		t.Errorf("with what Chromium adds: %v", err)
	}
	k, _, err := approval.NewPasskey(message, origin, a.Create(message))
	if err != nil || k.Fingerprint() != a.Passkey().Fingerprint() || !strings.HasPrefix(k.PEM(), "-----BEGIN PUBLIC KEY-----") {
		t.Errorf("enrolled %+v, %v", k, err)
	}
}

// wrong are answers of a passkey that is the person's own, each with one thing
// wrong.
var wrong = map[string]func(*yetttest.Authenticator){
	"another origin":              func(a *yetttest.Authenticator) { a.Origin = "http://evil.example" },
	"another port":                func(a *yetttest.Authenticator) { a.Origin = "http://localhost:7332" },
	"no port":                     func(a *yetttest.Authenticator) { a.Origin = "http://localhost" },
	"a name that begins so":       func(a *yetttest.Authenticator) { a.Origin = origin + ".evil.example" },
	"an address":                  func(a *yetttest.Authenticator) { a.Origin = "http://127.0.0.1:7331" },
	"other letters":               func(a *yetttest.Authenticator) { a.Origin = "HTTP://LOCALHOST:7331" },
	"https":                       func(a *yetttest.Authenticator) { a.Origin = "https://localhost:7331" },
	"another relying party":       func(a *yetttest.Authenticator) { a.RPID = "example.com" },
	"nobody was verified":         func(a *yetttest.Authenticator) { a.Flags = yetttest.FlagPresent },
	"nobody was there":            func(a *yetttest.Authenticator) { a.Flags = yetttest.FlagVerified },
	"in a frame of another page":  func(a *yetttest.Authenticator) { a.Cross = "true" },
	"a second origin behind":      func(a *yetttest.Authenticator) { a.Trailing = `,"origin":"http://evil.example"` },
	"a second challenge behind":   func(a *yetttest.Authenticator) { a.Trailing = `,"challenge":"AAAA"` },
	"a page around it is claimed": func(a *yetttest.Authenticator) { a.Trailing = `,"topOrigin":"http://evil.example"` },
}

func TestPasskeyRefusesWrongAnswers(t *testing.T) {
	message := approval.DecisionMessage(digest, approval.ChoiceOnce, time.Time{}, nonce)
	for what, spoil := range wrong {
		a := yetttest.NewAuthenticator(origin)
		spoil(a)
		if _, err := a.Passkey().Verify(message, origin, a.Get(message)); !errors.Is(err, approval.ErrPasskey) {
			t.Errorf("%s: an answer was accepted: %v", what, err)
		}
		if _, _, err := approval.NewPasskey(message, origin, a.Create(message)); !errors.Is(err, approval.ErrPasskey) {
			t.Errorf("%s: an enrolment was accepted: %v", what, err)
		}
	}
	a := yetttest.NewAuthenticator(origin)
	a.Kind = "webauthn.create"
	if _, err := a.Passkey().Verify(message, origin, a.Get(message)); !errors.Is(err, approval.ErrPasskey) {
		t.Errorf("an enrolment was accepted as an answer: %v", err)
	}
	a.Kind = "webauthn.get"
	if _, _, err := approval.NewPasskey(message, origin, a.Create(message)); !errors.Is(err, approval.ErrPasskey) {
		t.Errorf("an answer was accepted as an enrolment: %v", err)
	}
	if _, err := a.Passkey().Verify(message, "http://evil.example", a.Get(message)); !errors.Is(err, approval.ErrPasskey) {
		t.Errorf("an origin that is no console's was accepted: %v", err)
	}
}

// TestPasskeyCoversTheWholeDecision: an answer to one decision is none to
// another: not with another choice, end, card, set or order of cards, or nonce.
func TestPasskeyCoversTheWholeDecision(t *testing.T) {
	a := yetttest.NewAuthenticator(origin)
	other := strings.Repeat("0", 64)
	both := []string{digest, other}
	given := a.Get(approval.DecisionsMessage(both, approval.ChoiceUntil, until, nonce))
	for what, message := range map[string][]byte{
		"another choice":   approval.DecisionsMessage(both, approval.ChoiceOnce, until, nonce),
		"another end":      approval.DecisionsMessage(both, approval.ChoiceUntil, until.Add(time.Nanosecond), nonce),
		"no end":           approval.DecisionsMessage(both, approval.ChoiceUntil, time.Time{}, nonce),
		"another nonce":    approval.DecisionsMessage(both, approval.ChoiceUntil, until, nonce+"x"),
		"the other order":  approval.DecisionsMessage([]string{other, digest}, approval.ChoiceUntil, until, nonce),
		"one of them":      approval.DecisionMessage(digest, approval.ChoiceUntil, until, nonce),
		"one more of them": approval.DecisionsMessage(append(slices.Clone(both), other), approval.ChoiceUntil, until, nonce),
		"joined":           approval.DecisionsMessage([]string{digest + "\n" + other}, approval.ChoiceUntil, until, nonce),
		"an act":           approval.ProofMessage("secret.set", []byte("{}"), nonce),
	} {
		if _, err := a.Passkey().Verify(message, origin, given); !errors.Is(err, approval.ErrPasskey) {
			t.Errorf("%s: accepted (%v)", what, err)
		}
	}
}

// TestPasskeyEveryByteCounts: with any byte of it changed the answer of a
// passkey is refused.
func TestPasskeyEveryByteCounts(t *testing.T) {
	a := yetttest.NewAuthenticator(origin)
	message := approval.DecisionMessage(digest, approval.ChoiceOnce, time.Time{}, nonce)
	given := a.Get(message)
	parts := map[string]func(*approval.Assertion) *approval.Bytes{
		"credential id":      func(g *approval.Assertion) *approval.Bytes { return &g.CredentialID },
		"client data":        func(g *approval.Assertion) *approval.Bytes { return &g.ClientData },
		"authenticator data": func(g *approval.Assertion) *approval.Bytes { return &g.AuthenticatorData },
		"signature":          func(g *approval.Assertion) *approval.Bytes { return &g.Signature },
	}
	for name, part := range parts {
		n := len(*part(&given))
		if n < 32 {
			t.Fatalf("the %s has %d bytes", name, n)
		}
		for i := range n {
			changed := given
			b := part(&changed)
			*b = slices.Clone(*b)
			(*b)[i] ^= 1 << (i % 8)
			if _, err := a.Passkey().Verify(message, origin, changed); !errors.Is(err, approval.ErrPasskey) {
				t.Errorf("byte %d of the %s was changed: %v", i, name, err)
			}
		}
		for _, cut := range []int{0, n - 1} {
			changed := given
			*part(&changed) = (*part(&given))[:cut]
			if _, err := a.Passkey().Verify(message, origin, changed); !errors.Is(err, approval.ErrPasskey) {
				t.Errorf("the %s was cut to %d bytes: %v", name, cut, err)
			}
		}
		changed := given
		*part(&changed) = append(slices.Clone(*part(&given)), 0)
		if _, err := a.Passkey().Verify(message, origin, changed); !errors.Is(err, approval.ErrPasskey) {
			t.Errorf("the %s was made longer: %v", name, err)
		}
	}
}

func TestPasskeyCounter(t *testing.T) {
	for _, c := range []struct {
		last, now uint32
		ok        bool
	}{{0, 0, true}, {0, 1, true}, {1, 2, true}, {1, 1, false}, {2, 1, false}, {1, 0, false}} {
		if err := approval.Counted(c.last, c.now); (err == nil) != c.ok || err != nil && !errors.Is(err, approval.ErrPasskey) {
			t.Errorf("%d after %d: %v", c.now, c.last, err)
		}
	}
}

func TestBytesHaveOneForm(t *testing.T) {
	var b approval.Bytes
	for _, bad := range []string{`"AA=="`, `"AB"`, `"A"`, `"A+"`, `"AA\n"`, `"AA\r"`, `7`} {
		if json.Unmarshal([]byte(bad), &b) == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if err := json.Unmarshal([]byte(`"-_8"`), &b); err != nil || string(b) != "\xfb\xff" {
		t.Errorf("%q %v", b, err)
	}
}
