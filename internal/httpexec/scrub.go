package httpexec

import (
	"encoding/base64"
	"encoding/hex"
	"math/bits"
	"slices"
	"strings"
)

// mark stands where an echo of the credential was.
const mark = "[redacted by yett]"

// maxSecrets is how many secrets one scrubber looks for: each has up to nine
// patterns.
const maxSecrets = 7

// scrubber replaces echoes of some secrets: the secret itself, reversed, in hex,
// and in base64 at each of its three alignments, each in any letter case and
// each also with any of its characters escaped (see decode) or with line
// breaks or zero bytes in between (wrapped base64, UTF-16).
type scrubber struct {
	patterns []pattern
	first    [256]uint64 // which patterns may begin with this byte; escaped if it begins an escape
	second   [256]uint64 // which patterns may go on with this byte after an unescaped one; escaped for all
	backing  []byte      // of every pattern: wiped at the end
	scratch  []byte
	longest  int
	count    int
}

// pattern is one spelling of the secret in lower case.
type pattern struct {
	text        []byte
	left, right bool // the next character on that side holds some bits of the secret too
	escapable   bool // has characters that begin an escape, so that it can be read in two ways
}

const (
	escaped = 1 << 63
	all     = 1<<64 - 1
)

func newScrubber(secrets ...[]byte) *scrubber {
	if len(secrets) > maxSecrets {
		panic("httpexec: too many secrets of one call")
	}
	size := 0
	for _, secret := range secrets {
		size += 16*len(secret) + 64
	}
	s := &scrubber{backing: make([]byte, 0, size), patterns: make([]pattern, 0, 9*len(secrets))}
	for _, secret := range secrets {
		s.addSecret(secret)
	}
	for c := range s.second { // what comes behind the beginning of an escape does not count
		s.second[c] |= escaped
	}
	for _, c := range []byte{'%', '\\', '&'} {
		s.first[c] |= escaped
		s.second[c] = all
	}
	for _, c := range []byte{0, '\r', '\n', '+'} { // gaps; a plus may be a space
		s.second[c] = all
	}
	return s
}

// addSecret adds every spelling of a secret.
func (s *scrubber) addSecret(secret []byte) {
	n := len(secret)
	s.add(secret, false, false)
	from := len(s.backing)
	s.backing = append(s.backing, secret...)
	reversed := s.backing[from:len(s.backing):len(s.backing)]
	slices.Reverse(reversed)
	s.add(reversed, false, false)

	scratch := make([]byte, 2*n+16)
	hex.Encode(scratch, secret)
	s.add(scratch[:2*n], false, false)
	plain := make([]byte, n+2)
	for lead := range 3 {
		copy(plain[lead:], secret)
		in := plain[:lead+n]
		begin, end := (lead*8+5)/6, (lead+n)*8/6
		right := (lead+n)*8%6 != 0
		base64.StdEncoding.Encode(scratch, in)
		s.add(scratch[begin:end], lead > 0, right)
		if slices.ContainsFunc(scratch[begin:end], func(c byte) bool { return c == '+' || c == '/' }) {
			base64.URLEncoding.Encode(scratch, in)
			s.add(scratch[begin:end], lead > 0, right)
		}
		clear(plain)
	}
	clear(scratch)
}

func (s *scrubber) add(text []byte, left, right bool) {
	from := len(s.backing)
	for _, c := range text {
		s.backing = append(s.backing, lower(c))
	}
	p := pattern{text: s.backing[from:len(s.backing):len(s.backing)], left: left, right: right}
	p.escapable = slices.ContainsFunc(p.text, beginsEscape)
	bit := uint64(1) << len(s.patterns)
	s.first[p.text[0]] |= bit
	s.first[upper(p.text[0])] |= bit
	s.second[p.text[1]] |= bit
	s.second[upper(p.text[1])] |= bit
	s.patterns = append(s.patterns, p)
	s.longest = max(s.longest, len(p.text))
}

func (s *scrubber) wipe() {
	clear(s.backing[:cap(s.backing)])
	clear(s.scratch[:cap(s.scratch)])
}

// lookahead is how far an echo that begins before some place may reach beyond
// it.
func (s *scrubber) lookahead() int { return s.longest*maxStep + maxStep }

// text scrubs a header's name or value.
func (s *scrubber) text(v string) string {
	s.scratch = append(s.scratch[:0], v...)
	found := s.find(s.scratch, 0, len(s.scratch), false)
	if found == nil {
		return v
	}
	s.count += len(found)
	var out strings.Builder
	at := 0
	for _, f := range found {
		out.Write(s.scratch[at:f.from])
		out.WriteString(mark)
		at = f.to
	}
	out.Write(s.scratch[at:])
	return out.String()
}

// span is a part of the searched bytes, from the first up to the second.
type span struct{ from, to int }

// find returns the echoes that begin in b[begin:cut], in order, joined where
// they overlap. What lies around is looked at as well. broken says that b ends
// somewhere in the middle, where a mere beginning of an echo counts too.
func (s *scrubber) find(b []byte, begin, cut int, broken bool) []span {
	var found []span
	for i := begin; i < cut; i++ {
		candidates := s.first[b[i]]
		if i+1 < len(b) { // both are looked up without a branch between them, which would be hard to predict
			candidates &= s.second[b[i+1]]
		}
		if candidates == 0 {
			continue
		}
		if candidates&escaped != 0 {
			for layers := 1; layers <= 2; layers++ {
				if c, _, ok := decode(b, i, layers); ok {
					candidates |= s.first[c]
				}
			}
			candidates &^= escaped
		}
		to, from := 0, i
		for ; candidates != 0; candidates &= candidates - 1 {
			p := &s.patterns[bits.TrailingZeros64(candidates)]
			end := p.match(b, i, broken)
			if end == 0 {
				continue
			}
			if p.left && i > 0 && isBase64(b[i-1]) {
				from = i - 1
			}
			if p.right && end < len(b) && isBase64(b[end]) {
				end++
			}
			to = max(to, end)
		}
		if to == 0 {
			continue
		}
		if n := len(found); n > 0 && from < found[n-1].to {
			found[n-1].to = max(found[n-1].to, to)
		} else {
			found = append(found, span{from, to})
		}
	}
	return found
}
