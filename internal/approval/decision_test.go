package approval

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestDecisionMessageHasOneForm(t *testing.T) {
	until := time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.FixedZone("", 3600))
	if got, want := string(DecisionMessage("ab12", "until", until, "n_1")), "yett-decision-v1\nab12\nuntil\n2026-03-04T04:06:07.008Z\nn_1"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if got, want := string(DecisionMessage("ab12", "once", time.Time{}, "n_1")), "yett-decision-v1\nab12\nonce\n-\nn_1"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	const sum = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" // of foo
	if got, want := string(ProofMessage("vault.lock", []byte("foo"), "n_1")), "yett-proof-v1\nvault.lock\n"+sum+"\nn_1"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// A proof over one decision is none over another: no two tuples share bytes.
func TestDecisionMessageSeparatesItsFields(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	fields := []string{"", "-", "a", "a\nb", "b", "a\n", "\na", "a\nonce", "once", "once\n-", "until", "until\n2026-03-04T05:06:07Z",
		"2026-03-04T05:06:07Z", "-\na", `a\u{000A}b`, "a\r", "a\x00", "\xff", "\uFFFD", strings.Repeat("a", 600), strings.Repeat("a", 601)}
	seen := map[string][4]string{}
	for _, digest := range fields {
		for _, choice := range fields {
			for _, nonce := range fields {
				for _, until := range []time.Time{{}, at, at.Add(1), at.Add(time.Second)} {
					tuple := [4]string{digest, choice, until.String(), nonce}
					m := string(DecisionMessage(digest, choice, until, nonce))
					if other, ok := seen[m]; ok {
						t.Fatalf("%.200q and %.200q have the same message", tuple, other)
					}
					seen[m] = tuple
				}
			}
		}
	}
}

func TestProofMessageSeparatesItsFields(t *testing.T) {
	sum := strings.Repeat("0", 64)
	fields := []string{"", "a", "a\n", "\na", "a\n" + sum, sum, sum + "\na", "a\nb", "b"}
	seen := map[string]bool{}
	for _, method := range fields {
		for _, request := range fields {
			for _, nonce := range fields {
				m := string(ProofMessage(method, []byte(request), nonce))
				if seen[m] {
					t.Fatalf("%q, %q, %q has the message of another", method, request, nonce)
				}
				seen[m] = true
			}
		}
	}
}

// A proof of a decision is none of another request, whatever its method.
func TestDomainsAreApart(t *testing.T) {
	a := string(DecisionMessage("d", "once", time.Time{}, "n"))
	b := string(ProofMessage("d", nil, "n"))
	if strings.HasPrefix(a, "yett-proof") || strings.HasPrefix(b, "yett-decision") {
		t.Error("the messages of two kinds of proof can be equal")
	}
}

func TestTag(t *testing.T) {
	if len(words) != 256 {
		t.Errorf("%d words", len(words))
	}
	distinct := map[string]bool{}
	for i, w := range words {
		if w != Escape(w, 100) || w != strings.ToLower(w) || strings.ContainsAny(w, " -") || len(w) > 9 {
			t.Errorf("%q is no plain word", w)
		}
		for _, other := range words[:i] {
			if near(w, other) {
				t.Errorf("%q and %q differ in one letter", w, other)
			}
		}
		distinct[w] = true
	}
	if len(distinct) != len(words) {
		t.Errorf("%d of %d words are distinct", len(distinct), len(words))
	}
	if got, want := Tag("a_1"), "quail orchid"; got != want {
		t.Errorf("the tag of a_1 is %q, want %q", got, want)
	}
	seen := map[string]bool{}
	first, second := map[string]bool{}, map[string]bool{}
	for i := range 65536 {
		tag := Tag(fmt.Sprint(i))
		a, b, ok := strings.Cut(tag, " ")
		if !ok || !distinct[a] || !distinct[b] {
			t.Fatalf("tag %q", tag)
		}
		seen[tag], first[a], second[b] = true, true, true
	}
	if len(first) != 256 || len(second) != 256 || len(seen) < 40_000 { // of 65,536 draws from as many, 41,427 are expected
		t.Errorf("%d and %d words and %d tags are in use", len(first), len(second), len(seen))
	}
}

// near reports whether one letter more, less or changed makes b of a.
func near(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	if len(a) == len(b) {
		return a[min(same+1, len(a)):] == b[min(same+1, len(b)):]
	}
	return len(b) == len(a)+1 && a[same:] == b[same+1:]
}

// Two cards that wait at the same time never have the same tag, so the words
// that an agent was told lead to its card and to no other.
func TestNoTwoWaitingCardsHaveOneTag(t *testing.T) {
	q, _ := testQueue()
	seen := map[string]bool{}
	for i := range 1500 { // without the control two of them share one with a chance of 1 - 10^-7
		card := mustFile(t, q, ask(strings.Repeat("p", i/90), strings.Repeat("x", i))).Card
		if seen[card.Tag] {
			t.Fatalf("card %d has the tag of another: %s", i, card.Tag)
		}
		seen[card.Tag] = true
	}
}
