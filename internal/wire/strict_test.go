package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// members is an object of n members and these.
func members(n int, more ...string) string {
	var ms []string
	for i := range n {
		ms = append(ms, fmt.Sprintf(`"m%d":0`, i))
	}
	return "{" + strings.Join(append(ms, more...), ",") + "}"
}

func TestM15_CheckStrict(t *testing.T) {
	limits := Limits{Depth: 4, Members: 200}
	const passes, ambiguous, fails = "passes", "ambiguous", "fails"
	for _, c := range []struct{ name, line, want, id string }{
		{"an object", `{"id":1,"a":{"a":[1,{"a":2}]}}`, passes, "1"},
		{"no object", ` [1,"id",{"id":1}] `, passes, ""},
		{"an id inside", `{"a":{"id":1}}`, passes, ""},
		{"an id of any kind", `{"id":{"a":null}}`, passes, `{"a":null}`},
		{"an id in another case", `{"ID":"x"}`, passes, `"x"`},
		{"a duplicate behind the id", `{"id":1,"a":1,"A":1}`, ambiguous, "1"},
		{"the id behind a duplicate", `{"a":1,"\u0061":1,"id":2}`, ambiguous, "2"},
		{"the id behind a duplicate inside", `{"a":[{"key":1,"` + "\u212a" + `ey":1}],"id":"x"}`, ambiguous, `"x"`},
		{"half of a surrogate pair", `{"a":"\ud800","id":1}`, ambiguous, "1"},
		{"half of a surrogate pair as id", `{"id":"\udfff"}`, ambiguous, ""},
		{"half of a surrogate pair, then no JSON", `{"id":1,"a":"\ud800\u00"}`, fails, ""},
		{"two ids", `{"id":1,"iD":2}`, ambiguous, ""},
		{"three ids", `{"id":1,"id":2,"id":3}`, ambiguous, ""},
		{"as many as may be", members(200), passes, ""},
		{"too many", members(200, `"id":1`), ambiguous, "1"},
		{"too many inside", `{"a":` + members(201) + `,"id":1}`, ambiguous, "1"},
		{"a duplicate of the first among many", members(150, `"M0":1`), ambiguous, ""},
		{"a duplicate of a later one among many", members(150, `"M149":1`), ambiguous, ""},
		{"duplicates that only folding finds, among many", members(150, `"straße":1`, `"STRAßE":1`), ambiguous, ""},
		{"the long s among many", members(150, `"params":1`, "\"param\u017f\":1"), ambiguous, ""},
		{"names alike among many", members(150, `"straße":1`, `"strasse":1`, "\"i\":1", "\"\u0131\":1", "\"\u0130\":1"), passes, ""},
		{"as deep as may be", `[[[[1]]]]`, passes, ""},
		{"too deep", `[[[[[1]]]]]`, fails, ""},
		{"too deep behind a duplicate", `{"id":1,"a":1,"a":[[[[]]]]}`, fails, ""},
		{"not JSON behind a duplicate", `{"id":1,"a":1,"a":2,}`, fails, ""},
		{"trailing data behind a duplicate", `{"id":1,"a":1,"a":2} 1`, fails, ""},
		{"two messages", `{"id":1}{"id":2}`, fails, ""},
		{"invalid UTF-8", "{\"id\":\"\xff\"}", fails, ""},
		{"nothing", "", fails, ""},
	} {
		id, doubt, fail := CheckStrict([]byte(c.line), limits)
		got := passes
		switch {
		case fail != nil:
			got = fails
		case doubt != nil:
			got = ambiguous
		}
		if got != c.want || string(id) != c.id {
			t.Errorf("%s: %s with id %s, want %s with %s (%v, %v)", c.name, got, id, c.want, c.id, doubt, fail)
		}
	}
}

// TestCheckStrictKeepsNothing: a long line costs no memory of its size.
func TestCheckStrictKeepsNothing(t *testing.T) {
	for _, line := range []string{`[` + strings.Repeat(`1,`, 10_000) + `1]`, `{"a":[` + strings.Repeat(`[],`, 10_000) + `{"b":1}]}`} {
		p := &jsonParser{in: []byte(line), max: Limits{Depth: 4, Members: 4}, check: true}
		if v := p.whole(); p.fail != nil || v.items != nil || v.members != nil {
			t.Errorf("%.9s: %v, kept %d items and %d members", line, p.fail, len(v.items), len(v.members))
		}
	}
}

// FuzzCheckStrict: it holds what DecodeRequest holds, and what fails is not
// JSON or too deep.
// TestPlain: eight bytes at a time or one by one, the first special byte counts.
func TestPlain(t *testing.T) {
	for at := range 20 {
		for c := range 256 {
			for _, around := range []byte{' ', '!', '#', '[', ']', 0x7f, 0x80, 0xff} {
				b := bytes.Repeat([]byte{around}, 24)
				b[at], b[at+1] = byte(c), '"'
				want := at + 1
				if c < 0x20 || c == '"' || c == '\\' {
					want = at
				}
				if got := plain(b); got != want {
					t.Fatalf("%#x at %d among %#x: %d, want %d", c, at, around, got, want)
				}
			}
		}
	}
}

func FuzzCheckStrict(f *testing.F) {
	if len(requestSeeds) < 10 {
		f.Fatal("the corpus is empty")
	}
	for _, s := range requestSeeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(members(70, `"M69":1,"id":[2]`)))
	f.Fuzz(func(t *testing.T, line []byte) {
		id, ambiguous, fail := CheckStrict(line, Limits{Depth: MaxDepth, Members: maxMembers})
		if _, refused := parse(line); (refused == nil) != (ambiguous == nil && fail == nil) {
			t.Fatalf("%q: parse says %v, CheckStrict %v and %v", line, refused, ambiguous, fail)
		}
		if fail == nil && !json.Valid(line) || len(id) > 0 && (fail != nil || !json.Valid(id)) {
			t.Fatalf("%q: accepted, id %q", line, id)
		}
		var lax struct{ ID json.RawMessage }
		if fail == nil && ambiguous == nil && json.Unmarshal(line, &lax) == nil && string(lax.ID) != string(id) {
			t.Fatalf("%q: id %q, encoding/json reads %q", line, id, lax.ID)
		}
	})
}
