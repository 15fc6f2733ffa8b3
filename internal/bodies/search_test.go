package bodies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func reader(t *testing.T, body string) *Reader {
	t.Helper()
	s := openStore(t, t.TempDir(), Options{})
	put(t, s, Name{1, "s_1", Body}, []byte(body))
	r, err := s.Open(Name{1, "s_1", Body})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestGrep(t *testing.T) {
	r := reader(t, "one\r\ntwo\nthree\nfour\nfive\nsix\ntwo again\n\nlast two")
	for _, c := range []struct {
		g        Grep
		offset   int64
		want     string
		matches  int
		complete bool
		next     int64
	}{
		{Grep{"two", 0, 9}, 0, "2:two\n7:two again\n9:last two\n", 3, true, 48},
		{Grep{"^t", 0, 9}, 0, "2:two\n3:three\n7:two again\n", 3, true, 48},
		{Grep{"e$", 0, 9}, 0, "1:one\n3:three\n5:five\n", 3, true, 48},
		{Grep{"four", 1, 9}, 0, "3-three\n4:four\n5-five\n", 1, true, 48},
		{Grep{"two", 1, 9}, 0, "1-one\n2:two\n3-three\n--\n6-six\n7:two again\n8-\n9:last two\n", 3, true, 48},
		{Grep{"two", 0, 2}, 0, "2:two\n7:two again\n", 2, false, 40},
		{Grep{"two", 0, 2}, 40, "9:last two\n", 1, true, 48},
		{Grep{"two", 0, 9}, 6, "2:two\n7:two again\n9:last two\n", 3, true, 48},
		{Grep{"two", 0, 9}, 10, "7:two again\n9:last two\n", 2, true, 48},
		{Grep{"no such", 3, 9}, 0, "", 0, true, 48},
		{Grep{"", 0, 1}, 48, "", 0, true, 48},
	} {
		got, err := c.g.Search(t.Context(), r, c.offset, 1<<16)
		if err != nil || string(got.Text) != c.want || got.Matches != c.matches || got.Complete != c.complete || got.Next != c.next {
			t.Errorf("%+v from %d: %q %+v, %v", c.g, c.offset, got.Text, got, err)
		}
	}
}

// One search gives the same as many that go on where the one before stopped.
func TestGrepGoesOn(t *testing.T) {
	var body, want strings.Builder
	for i := 1; i <= 20_000; i++ {
		fmt.Fprintf(&body, "line %d of the log\n", i)
		if i%7 == 0 {
			fmt.Fprintf(&body, "match %d\n", i)
		}
	}
	for i, l := range strings.Split(strings.TrimSuffix(body.String(), "\n"), "\n") {
		if strings.HasPrefix(l, "match") {
			fmt.Fprintf(&want, "%d:%s\n", i+1, l)
		}
	}
	r, got, rounds := reader(t, body.String()), "", 0
	for offset, complete := int64(0), false; !complete; rounds++ {
		f, err := Grep{Pattern: "^match", Max: MaxMatches}.Search(t.Context(), r, offset, MinShown)
		if err != nil || !f.Complete && f.Next <= offset || len(f.Text) > MinShown {
			t.Fatalf("from %d: %d bytes, %+v, %v", offset, len(f.Text), f.Next, err)
		}
		got, offset, complete = got+string(f.Text), f.Next, f.Complete
	}
	if got != want.String() || rounds < 3 {
		t.Errorf("%d bytes in %d rounds, want %d", len(got), rounds, want.Len())
	}
}

func TestGrepOfLongLines(t *testing.T) {
	long := strings.Repeat("ä", 20_000) + "needle" + strings.Repeat("ö", 20_000)
	r := reader(t, "short\n"+long+"\nneedle\n"+strings.Repeat("x", 200_000)+"needle")
	f, err := Grep{Pattern: "needle", Max: 10}.Search(t.Context(), r, 0, MinShown)
	if err != nil || !f.Complete || f.Matches != 3 {
		t.Fatalf("%+v, %v", f, err)
	}
	for _, l := range strings.Split(strings.TrimSpace(string(f.Text)), "\n") {
		if len(l) > shownLine+20 || !strings.Contains(l, "needle") || strings.ContainsRune(l, '�') {
			t.Errorf("%d bytes: %q", len(l), l)
		}
	}
	if lines := strings.Split(string(f.Text), "\n"); !strings.HasPrefix(lines[0], "2:…") || !strings.HasPrefix(lines[1], "3:needle") || !strings.HasPrefix(lines[2], "4:") {
		t.Errorf("%q", f.Text)
	}
}

func TestPointer(t *testing.T) {
	r := reader(t, `{"items":[{"id":1,"name":"a","tags":["x","y"]},{"id":12345678901234567890,"name":"b\n<"},{"name":null}],"a/b":{"m~n":true},"":0, "n": {"x":[1, 2]}}`)
	for pointer, want := range map[string]string{
		"/items/0/name":   "\"a\"\n",
		"/items/*/name":   "\"a\"\n\"b\\n<\"\nnull\n",
		"/items/*/id":     "1\n12345678901234567890\n",
		"/items/0/tags/1": "\"y\"\n",
		"/items/*/tags/*": "\"x\"\n\"y\"\n",
		"/a~1b/m~0n":      "true\n",
		"/":               "0\n",
		"/n":              "{\"x\":[1,2]}\n",
		"/n/*":            "[1,2]\n",
		"/none/of/these":  "",
		"/items/7":        "",
		"/items/id":       "",
	} {
		p, err := ParsePointer(pointer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Select(t.Context(), r, 1<<16)
		if err != nil || string(got.Text) != want || !got.Complete || got.Matches != strings.Count(want, "\n") {
			t.Errorf("%s: %q %+v, %v", pointer, got.Text, got, err)
		}
	}
	p, _ := ParsePointer("/n")
	got, err := p.Select(t.Context(), reader(t, "{\"n\":1}\n{\"n\":2}\n{\"m\":3}\n"), 1<<16)
	if err != nil || string(got.Text) != "1\n2\n" {
		t.Errorf("a document a line: %q, %v", got.Text, err)
	}
	p, _ = ParsePointer("/items/*")
	if got, err := p.Select(t.Context(), r, 50); err != nil || got.Complete || got.Matches != 1 {
		t.Errorf("without room: %q %+v, %v", got.Text, got, err)
	}
}

func TestWhatCannotBeSearched(t *testing.T) {
	var cannot *SearchError
	r := reader(t, `{"a": [1, 2`)
	for _, pattern := range []string{"(", "a{2000}", strings.Repeat("(?:a?){999}", 3), strings.Repeat("x", maxPattern+1), `\8`} {
		if _, err := (Grep{Pattern: pattern, Max: 1}).Search(t.Context(), r, 0, MinShown); !errors.As(err, &cannot) {
			t.Errorf("%.20q: %v", pattern, err)
		}
	}
	for _, pointer := range []string{"a", "a/b", "/~", "/~2", "/a~", strings.Repeat("/x", maxSteps+1), "/" + strings.Repeat("x", maxPointer)} {
		if _, err := ParsePointer(pointer); !errors.As(err, &cannot) {
			t.Errorf("%.20q: %v", pointer, err)
		}
	}
	for _, body := range []string{`{"a": [1, 2`, "", "not json", `{"a" 1}`, "\x00"} {
		p, _ := ParsePointer("/a/b")
		if got, err := p.Select(t.Context(), reader(t, body), MinShown); !errors.As(err, &cannot) {
			t.Errorf("%q: %+v, %v", body, got, err)
		}
	}
	p, _ := ParsePointer("/a")
	if _, err := p.Select(t.Context(), reader(t, strings.Repeat(" ", maxDocument+1)), MinShown); !errors.As(err, &cannot) {
		t.Errorf("a document that is too long: %v", err)
	}
}

// A search ends with its time, and says how far it came.
func TestASearchEnds(t *testing.T) {
	r := reader(t, strings.Repeat("some line\n", 100_000))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, err := Grep{Pattern: "x", Max: 1}.Search(ctx, r, 0, MinShown)
	if err != nil || f.Complete || f.Next != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	// Time is looked at within a line too: this one alone would take seconds. What
	// was found before it is shown; where nothing can come any more, that is said.
	hostile := Grep{Pattern: "one|" + strings.Repeat("(?:a?){999}", 2) + "x", Max: 9}
	long := strings.Repeat("a", maxLine)
	for body, next := range map[string]int64{long: -1, "one\n" + long: 4} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		f, err := hostile.Search(ctx, reader(t, body), 0, MinShown)
		if took := time.Since(began); took > time.Second {
			t.Errorf("a search of 200 ms took %v", took)
		}
		if next < 0 && !errors.As(err, new(*SearchError)) || next > 0 && (err != nil || f.Complete || f.Next != next || string(f.Text) != "1:one\n") {
			t.Errorf("%.10q: %q %+v, %v", body, f.Text, f, err)
		}
	}
	p, _ := ParsePointer("/x")
	if _, err := p.Select(ctx, reader(t, "[]"), MinShown); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
