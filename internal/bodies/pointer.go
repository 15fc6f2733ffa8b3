package bodies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxDocument is the longest body that is read as JSON: one value of it may
	// have to lie in memory.
	maxDocument = 16 << 20
	maxSteps    = 64
	maxPointer  = 1 << 10
)

// Pointer is a JSON pointer (RFC 6901) in which a step of * means every element
// of an array and every member of an object.
type Pointer []string

// ParsePointer reads '/items/*/name'; the empty pointer is the whole document.
func ParsePointer(s string) (Pointer, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' || len(s) > maxPointer {
		return nil, &SearchError{"a pointer begins with / and has at most 1024 bytes, as in /items/*/name"}
	}
	steps := strings.Split(s[1:], "/")
	if len(steps) > maxSteps {
		return nil, &SearchError{fmt.Sprintf("it has more than %d steps", maxSteps)}
	}
	for i, step := range steps {
		if strings.Count(step, "~") != strings.Count(step, "~0")+strings.Count(step, "~1") {
			return nil, &SearchError{"in a name ~ is written ~0, and / is written ~1"}
		}
		steps[i] = unescape.Replace(step)
	}
	return steps, nil
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// selection is a walk over one document.
type selection struct {
	ctx   context.Context
	dec   *json.Decoder
	limit int
	found Found
}

var errFull = errors.New("the room is used up")

// Select returns the values that the pointer leads to, one a line, compact, at
// most limit bytes. The document is read once and as a stream; where others
// follow it, as in logs, each of them.
func (p Pointer) Select(ctx context.Context, r *Reader, limit int) (Found, error) {
	if r.Size() > maxDocument {
		return Found{}, &SearchError{fmt.Sprintf("it has more than %d bytes; grep works at any size", maxDocument)}
	}
	dec := json.NewDecoder(io.NewSectionReader(r, 0, r.Size()))
	dec.UseNumber()
	s := &selection{ctx: ctx, dec: dec, limit: limit}
	err := s.walk(p)
	for err == nil && dec.More() { // one document a line, as logs have it
		err = s.walk(p)
	}
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, errFull):
		return s.found, nil
	case errors.As(err, &syntax), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Found{}, &SearchError{fmt.Sprintf("it is not JSON from about byte %d on", dec.InputOffset())}
	case err != nil:
		return Found{}, err
	}
	s.found.Complete = true
	return s.found, nil
}

// walk reads one value and takes from it what p leads to.
func (s *selection) walk(p Pointer) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if len(p) == 0 {
		return s.take()
	}
	t, err := s.dec.Token()
	if err != nil {
		return err
	}
	open, nested := t.(json.Delim)
	if !nested {
		return nil // a plain value has nothing inside
	}
	for i := 0; s.dec.More(); i++ {
		step := strconv.Itoa(i)
		if open == '{' {
			name, err := s.dec.Token()
			if err != nil {
				return err
			}
			step = name.(string)
		}
		inside := s.skip
		if p[0] == "*" || p[0] == step {
			inside = func() error { return s.walk(p[1:]) }
		}
		if err := inside(); err != nil {
			return err
		}
	}
	_, err = s.dec.Token() // the closing one
	return err
}

func (s *selection) take() error {
	var raw json.RawMessage
	if err := s.dec.Decode(&raw); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return err
	}
	if len(s.found.Text)+out.Len()+1 > s.limit {
		return errFull
	}
	s.found.Text = append(append(s.found.Text, out.Bytes()...), '\n')
	s.found.Matches++
	return nil
}

// skip reads one value and keeps nothing of it.
func (s *selection) skip() error {
	for depth := 0; ; {
		t, err := s.dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
