package wire

import (
	"encoding/json"
	"strings"
	"unicode"
)

// Limits bound what CheckStrict accepts.
type Limits struct {
	Depth   int // nesting of arrays and objects
	Members int // members of one object
}

// CheckStrict reads a line as strictly as DecodeRequest reads a frame, within
// limits of the caller, and keeps nothing of it: what the line means is the
// caller's business.
//
// fail is why the line is not one JSON value within max.Depth. ambiguous is why
// parsers may differ on what it says: a member that stands twice in one object,
// more members than max.Members, of which not all were compared, or half of a
// surrogate pair. id, a part of line, is the value of the top-level member of
// that name, in any case, unless there are several; it is there for an ambiguous
// line too, so that the refusal can be answered.
func CheckStrict(line []byte, max Limits) (id json.RawMessage, ambiguous, fail *Error) {
	p := &jsonParser{in: line, max: max, check: true}
	p.whole()
	if p.fail != nil {
		return nil, nil, p.fail
	}
	if p.ids == 1 {
		id = p.id
	}
	return id, p.ambiguous, nil
}

// fewNames are compared one by one, which is the fastest for most objects.
const fewNames = 64

// names are the folded names of an object that has many: comparing each with
// each would cost the square of their number.
type names map[string]bool

// twice reports whether name stands among ms, names being equal as encoding/json
// takes them for equal. The caller appends it to ms if not.
func (n *names) twice(ms []member, name string) bool {
	if len(ms) < fewNames {
		for _, m := range ms {
			if strings.EqualFold(m.name, name) {
				return true
			}
		}
		return false
	}
	if *n == nil {
		*n = make(names, 2*fewNames)
		for _, m := range ms {
			(*n)[fold(m.name)] = true
		}
	}
	folded := fold(name)
	if (*n)[folded] {
		return true
	}
	(*n)[folded] = true
	return false
}

// fold maps names that are equal under Unicode simple folding, as
// strings.EqualFold has it, to one string: U+017F is 's' and U+212A is 'k'.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		low := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			low = min(low, f)
		}
		return low
	}, s)
}
