package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// canonical writes v as RFC 8785 (JCS) does: no white space, members sorted by
// the UTF-16 code units of their names, strings with the shortest escapes. Of
// numbers it takes integers only and writes all of their digits; beyond 2^53
// that is more than JCS, which would round them, and inodes can be that large.
func canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	return appendCanonical(make([]byte, 0, len(raw)), tree)
}

func appendCanonical(out []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(out, "null"...), nil
	case bool:
		return fmt.Append(out, v), nil
	case string:
		return appendString(out, v), nil
	case json.Number:
		if strings.Trim(string(v), "-0123456789") != "" || v == "-0" {
			return nil, fmt.Errorf("the number %s is no integer", v)
		}
		return append(out, v...), nil
	case []any:
		return appendArray(out, v)
	case map[string]any:
		return appendObject(out, v)
	}
	return nil, fmt.Errorf("a value of type %T", v)
}

func appendArray(out []byte, items []any) (_ []byte, err error) {
	out = append(out, '[')
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendCanonical(out, item); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

func appendObject(out []byte, members map[string]any) (_ []byte, err error) {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
	})
	out = append(out, '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, name), ':')
		if out, err = appendCanonical(out, members[name]); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// shortEscapes are the control characters that have an escape of two letters.
var shortEscapes = map[byte]string{'\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`, '"': `\"`, '\\': `\\`}

func appendString(out []byte, s string) []byte {
	out = append(out, '"')
	for i := range len(s) {
		c := s[i]
		if short, ok := shortEscapes[c]; ok {
			out = append(out, short...)
		} else if c < 0x20 {
			out = fmt.Appendf(out, `\u%04x`, c)
		} else {
			out = append(out, c)
		}
	}
	return append(out, '"')
}
