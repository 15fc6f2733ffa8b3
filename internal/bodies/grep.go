package bodies

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strconv"
	"unicode/utf8"
)

// Bounds of a search.
const (
	maxPattern = 1 << 10 // bytes of an expression
	maxProgram = 5000    // instructions that it compiles to
	maxLine    = 64 << 10
	// maxCost is how many steps a line may take before it is read in a way that
	// looks at the time: some 50 ms.
	maxCost   = 4 << 20
	shownLine = 600 // bytes of a line that are shown; of a longer one, those around the match
	// MaxContext and MaxMatches bound what a search may ask for.
	MaxContext = 10
	MaxMatches = 1000
	// MinShown is the least room for what is found: one match and what stands
	// around it.
	MinShown = 16 << 10
)

// Grep is a search for lines.
type Grep struct {
	Pattern string // RE2
	Context int    // lines before and after each match
	Max     int    // matches
}

// Found is what a search gives. The text is cut at a line, and Complete says that
// everything was searched and is in it.
type Found struct {
	Text     []byte
	Matches  int
	Complete bool
	Next     int64 // where to go on if it is not complete
}

// SearchError is why a body cannot be searched in this way.
type SearchError struct{ Why string }

func (e *SearchError) Error() string { return e.Why }

// grepper is one search under way. What it shows is 'number:line' for a match
// and 'number-line' for what stands around it, as grep writes it, with '--'
// between what does not lie together.
type grepper struct {
	Grep
	ctx    context.Context
	re     *regexp.Regexp
	size   int // of its program
	limit  int
	out    []byte
	before []line // the last ones that were not shown
	shown  int    // number of the last line that was shown
	after  int    // lines that are still shown behind a match
	found  int
}

type line struct {
	number int
	at     int64
	text   []byte
}

// Search looks through r from offset on, line by line, and shows at most limit
// bytes. A line that is longer than 64 KiB is looked at in pieces of that. It
// ends early with ctx, and says how far it came.
func (g Grep) Search(ctx context.Context, r *Reader, offset int64, limit int) (Found, error) {
	if len(g.Pattern) > maxPattern {
		return Found{}, &SearchError{fmt.Sprintf("it is longer than %d bytes", maxPattern)}
	}
	re, size, err := compile(g.Pattern)
	if err != nil {
		return Found{}, err
	}
	s := &grepper{Grep: g, ctx: ctx, re: re, size: size, limit: limit, shown: -1}
	number, at := 1, int64(0)
	if offset >= r.Size() {
		return Found{Complete: true, Next: r.Size()}, nil
	}
	if offset > 0 { // numbers count from the begin, wherever the search starts
		if number, at, err = skipLines(ctx, r, offset); err != nil {
			return Found{}, err
		}
	}
	in := bufio.NewReaderSize(io.NewSectionReader(r, at, r.Size()-at), maxLine)
	for begin := at; ; number++ {
		text, err := in.ReadSlice('\n')
		if len(text) == 0 && err == io.EOF {
			return Found{Text: s.out, Matches: s.found, Complete: true, Next: at}, nil
		}
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return Found{}, err
		}
		inTime := ctx.Err() == nil
		if !inTime || !s.take(line{number, at, text}) {
			if inTime && ctx.Err() != nil && at == begin { // to go on from here would end here again
				return Found{}, &SearchError{"the expression takes too long on a single line; use a simpler one"}
			}
			return Found{Text: s.out, Matches: s.found, Next: at}, nil
		}
		at += int64(len(text))
		if errors.Is(err, bufio.ErrBufferFull) {
			number-- // the rest is the same line
		}
	}
}

// compile returns an expression and the size of its program.
func compile(pattern string) (*regexp.Regexp, int, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, 0, &SearchError{err.Error()}
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, &SearchError{err.Error()}
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, &SearchError{err.Error()}
	}
	if len(program.Inst) > maxProgram {
		return nil, 0, &SearchError{"it is too large: it repeats too much"}
	}
	return re, len(program.Inst), nil
}

// find looks for the expression in a line. Time grows with the product of both,
// so where that is large the line ends with ctx.
func (s *grepper) find(text []byte) []int {
	if len(text)*s.size <= maxCost {
		return s.re.FindIndex(text)
	}
	return s.re.FindReaderIndex(&timed{ctx: s.ctx, in: bytes.NewReader(text)})
}

// timed ends with ctx.
type timed struct {
	ctx context.Context
	in  *bytes.Reader
}

func (t *timed) ReadRune() (rune, int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, 0, err
	}
	return t.in.ReadRune()
}

// skipLines returns the line that offset lies in and where it begins.
func skipLines(ctx context.Context, r *Reader, offset int64) (number int, at int64, err error) {
	number = 1
	in := bufio.NewReaderSize(io.NewSectionReader(r, 0, min(offset, r.Size())), maxLine)
	pos := int64(0)
	for {
		text, err := in.ReadSlice('\n')
		pos += int64(len(text))
		if len(text) > 0 && text[len(text)-1] == '\n' {
			number, at = number+1, pos
		} else if errors.Is(err, bufio.ErrBufferFull) {
			at = pos // a piece of a long line
		}
		if err == io.EOF {
			return number, at, nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
	}
}

// take looks at one line; false means that it has no room any more, or that the
// matches are enough.
func (s *grepper) take(l line) bool {
	match := s.find(trimEnd(l.text))
	if s.ctx.Err() != nil { // it may have seen a part of the line
		return false
	}
	if match == nil {
		if s.after > 0 {
			s.after--
			return s.show(l, '-', nil)
		}
		if s.Context > 0 {
			if len(s.before) == s.Context {
				s.before = s.before[:copy(s.before, s.before[1:])]
			}
			s.before = append(s.before, line{l.number, l.at, append([]byte(nil), excerpt(trimEnd(l.text), nil)...)})
		}
		return true
	}
	if s.found == s.Max {
		return false
	}
	mark := len(s.out)
	for _, b := range s.before {
		if !s.show(b, '-', nil) {
			s.out = s.out[:mark]
			return false
		}
	}
	if !s.show(l, ':', match) {
		s.out = s.out[:mark]
		return false
	}
	s.before = s.before[:0]
	s.found++
	s.after = s.Context
	return true
}

func (s *grepper) show(l line, sign byte, match []int) bool {
	text := excerpt(trimEnd(l.text), match)
	gap := s.Context > 0 && s.shown >= 0 && l.number > s.shown+1
	if len(s.out)+len(text)+32 > s.limit {
		return false
	}
	if gap {
		s.out = append(s.out, "--\n"...)
	}
	s.out = strconv.AppendInt(s.out, int64(l.number), 10)
	s.out = append(append(append(s.out, sign), text...), '\n')
	s.shown = l.number
	return true
}

func trimEnd(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b
}

// excerpt is a line, or of a long one the part around the match, cut between
// characters.
func excerpt(text []byte, match []int) []byte {
	if len(text) <= shownLine {
		return text
	}
	from, to := 0, shownLine
	if match != nil {
		from = max(0, min(match[0]-shownLine/3, len(text)-shownLine))
		to = from + shownLine
	}
	for from > 0 && from < to && !utf8.RuneStart(text[from]) {
		from++
	}
	for to < len(text) && to > from && !utf8.RuneStart(text[to]) {
		to--
	}
	var out []byte
	if from > 0 {
		out = append(out, "…"...)
	}
	out = append(out, text[from:to]...)
	if to < len(text) {
		out = append(out, "…"...)
	}
	return out
}
