package httpexec

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

var errCut = errors.New("cut")

// bytes scrubs the first cut bytes of raw, which may be longer; broken says that
// raw ends somewhere in the middle.
func (s *scrubber) bytes(raw []byte, cut int, broken bool) []byte {
	var out keptBody
	st := stream{s: s, out: &out}
	r := io.Reader(bytes.NewReader(raw))
	if broken {
		r = io.MultiReader(r, iotest.ErrReader(errCut))
	}
	st.copy(r, int64(cut), func([]byte, bool) bool { return false })
	return out
}

// However a body arrives, what is handed on is the same as if it had been looked
// at as a whole, wherever an echo lies in it.
func TestH08_EchoesAcrossEveryPieceOfAStream(t *testing.T) {
	spellings := []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(secret)}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		var body, want bytes.Buffer
		for body.Len() < 3*window {
			filler := strings.Repeat("x", 1+rng.IntN(40)) + "." // so near that one lies across most borders
			if rng.IntN(500) == 0 {
				filler = strings.Repeat("x", 2*window) + "."
			}
			echo := spellings[rng.IntN(len(spellings))]
			body.WriteString(filler + echo)
			want.WriteString(filler + mark)
		}
		for name, r := range map[string]io.Reader{"at once": &body, "in pieces": &pieces{bytes.NewReader(bytes.Clone(body.Bytes())), rng}} {
			s := newScrubber([]byte(secret))
			var out keptBody
			st := stream{s: s, out: &out}
			if whole := st.copy(r, 1<<30, func([]byte, bool) bool { return false }); !whole || !bytes.Equal(out, want.Bytes()) {
				t.Fatalf("%s: whole %v, %d echoes counted, %d bytes for %d; the secret is in it: %v", name, whole, s.count, len(out), want.Len(),
					bytes.Contains(bytes.ToLower(out), []byte(strings.ToLower(secret))))
			}
		}
	}
}

// An echo that lies at every place around the border of two windows.
func TestH08_EchoAtEveryOffsetOfAWindow(t *testing.T) {
	s := newScrubber([]byte(secret))
	size := max(window, 2*s.lookahead())
	echoes := []string{secret, "Bearer " + secret}
	for _, before := range []string{"", "x", "xy"} {
		echoes = append(echoes, base64.RawStdEncoding.EncodeToString([]byte(before+secret)))
	}
	for _, echo := range echoes {
		alone := string(s.bytes([]byte(" "+echo+" "), len(echo)+2, false))
		for i := range 2 * (len(echo) + 4) {
			at := size - len(echo) - 2 + i/2 // around the end of what is read, and of what is searched
			if i%2 == 1 {
				at -= s.lookahead()
			}
			raw := strings.Repeat(" ", at) + echo + strings.Repeat(" ", window/2)
			got := string(s.bytes([]byte(raw), len(raw), false))
			if want := strings.Replace(raw, " "+echo+" ", alone, 1); got != want {
				t.Fatalf("%.10s… at %d: %d bytes for %d", echo, at, len(got), len(want))
			}
		}
	}
}

// pieces gives what it holds in pieces of any size.
type pieces struct {
	r   io.Reader
	rng *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	return p.r.Read(b[:min(len(b), 1+p.rng.IntN(20_000))])
}

// What grows no buffer does not grow with the body.
func TestAStreamIsNotHeldInMemory(t *testing.T) {
	s := newScrubber([]byte(secret))
	st := stream{s: s, out: io.Discard}
	endless := io.LimitReader(zeros{}, 64<<20)
	if whole := st.copy(endless, 1<<30, func([]byte, bool) bool { return false }); !whole || cap(st.buf) > 2*window {
		t.Errorf("whole %v, a buffer of %d bytes", whole, cap(st.buf))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'z'
	}
	return len(p), nil
}
