package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/yett-broker/yett/internal/action"
)

// fill sets every field of v to something: strings to the marker and a number,
// so that each can be found again.
func fill(v reflect.Value, marker string, n *int) {
	*n++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2026, 3, 4, 5, 6, *n%60, 0, time.UTC)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%s%d.", marker, *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), marker, n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), marker, n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), marker, n)
		fill(v.Index(1), marker, n)
	case reflect.Map:
		*n++
		v.Set(reflect.ValueOf(map[string]string{fmt.Sprintf("%s%d.", marker, *n-1): fmt.Sprintf("%s%d.", marker, *n)}))
	default:
		panic("a card has a field of kind " + v.Kind().String())
	}
}

func filled(marker string) Card {
	var c Card
	n := 0
	fill(reflect.ValueOf(&c).Elem(), marker, &n)
	return c
}

// texts returns every string of v, the keys and values of maps too.
func texts(v reflect.Value) []string {
	var out []string
	if _, ok := v.Interface().(time.Time); ok {
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		out = append(out, v.String())
	case reflect.Pointer:
		out = texts(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			out = append(out, texts(v.Field(i))...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, texts(v.Index(i))...)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			out = append(out, k.String(), v.MapIndex(k).String())
		}
	}
	return out
}

func mustWrite(t *testing.T, c Card) []byte {
	t.Helper()
	doc, err := write(c)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// readBack decodes a document as the command line does.
func readBack(t *testing.T, doc []byte) Card {
	t.Helper()
	var c Card
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		t.Fatalf("a card cannot be read back: %v", err)
	}
	return c
}

// P04: every string of every part is escaped, not just the purpose.
func TestP04_EveryStringOfACardIsEscaped(t *testing.T) {
	const marker = "\u202E\x1b[2K\u200B\xff'\"\n"
	c := filled(marker)
	planted := texts(reflect.ValueOf(c))
	if len(planted) < 50 {
		t.Fatalf("only %d strings were planted", len(planted))
	}
	doc := mustWrite(t, c)
	for _, r := range string(doc) {
		if !unicode.IsPrint(r) || r == '\u202E' {
			t.Errorf("the document has U+%04X", r)
		}
	}
	shown := texts(reflect.ValueOf(readBack(t, doc)))
	for _, s := range planted {
		if want := Escape(s, 1000); !slices.Contains(shown, want) {
			t.Errorf("%q does not stand in the card as %q", s, want)
		}
	}
	if len(shown) != len(planted) {
		t.Errorf("%d strings were planted, %d are shown", len(planted), len(shown))
	}
}

// P04: bytes that are no text are not made equal on the way.
func TestP04_BinaryBodiesStayApart(t *testing.T) {
	show := func(body string) string {
		r := action.Request{Capability: "http:x", HTTP: &action.HTTP{Method: "POST", Path: "/", Body: []byte(body)}}
		return readBack(t, mustWrite(t, Card{Request: NewRequest("op_1", r)})).Request.Body
	}
	if a, b := show("\xff\xfe"), show("\xfe\xff"); a == b || a != `\x{FF}\x{FE}` {
		t.Errorf("two bodies are shown as %q and %q", a, b)
	}
}

// P04: neither length nor number hides anything without a mark, and the mark
// is none that an agent can write.
func TestP04_WhatIsLeftOutIsMarked(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	c := Card{Request: &Request{Body: long}}
	c.Claimed.Purpose = long
	c.Claimed.Labels = map[string]string{`\+{1}`: "imitated", strings.Repeat("n", 70): "first", strings.Repeat("n", 69) + "o": "second"}
	for i := range 300 {
		c.Claimed.Process.Argv = append(c.Claimed.Process.Argv, fmt.Sprint(i))
		c.Request.Headers = append(c.Request.Headers, action.Header{Name: fmt.Sprint("X-", i), Value: "v"})
	}
	got := readBack(t, mustWrite(t, c))
	if want := strings.Repeat("x", capText) + `\+{9488}`; got.Claimed.Purpose != want {
		t.Errorf("a purpose of 10,000 characters becomes %d", len(got.Claimed.Purpose))
	}
	if got.Request.Body != long {
		t.Errorf("of a body of 10,000 characters %d are shown", len(got.Request.Body))
	}
	if a := got.Claimed.Process.Argv; len(a) != capItems+1 || a[capItems] != `\+{172}` || a[0] != "0" {
		t.Errorf("300 arguments become %d, the last is %q", len(a), a[len(a)-1])
	}
	if h := got.Request.Headers; len(h) < 300 {
		t.Errorf("300 headers become %d, the last is %v", len(h), h[len(h)-1])
	}
	// Two names that are cut to the same text: one is shown, one is counted.
	want := map[string]string{`\\+{1}`: "imitated", strings.Repeat("n", 64) + `\+{6}`: "first", `\+{1}`: ""}
	if !reflect.DeepEqual(got.Claimed.Labels, want) {
		t.Errorf("labels %v, want %v", got.Claimed.Labels, want)
	}
}

func TestLabelsAreCutInTheOrderOfTheirNames(t *testing.T) {
	c := Card{}
	c.Claimed.Labels = map[string]string{}
	for i := range 2 * capItems {
		c.Claimed.Labels[fmt.Sprintf("label-%03d", i)] = "v"
	}
	first := mustWrite(t, c)
	labels := readBack(t, first).Claimed.Labels
	if _, ok := labels["label-127"]; !ok || len(labels) != capItems+1 {
		t.Errorf("%d labels are shown", len(labels))
	}
	if _, ok := labels[`\+{128}`]; !ok {
		t.Error("the labels left out are not counted")
	}
	for range 20 {
		if !bytes.Equal(mustWrite(t, c), first) {
			t.Fatal("the same card has two documents")
		}
	}
}

// Whatever an agent writes, its card fits a frame: one that did not would hide
// itself and all others from the person. What the system says is not cut.
func TestP04_ACardFitsAFrame(t *testing.T) {
	c := filled("x")
	worst := strings.Repeat("\U000E0100", 1<<17)
	many := slices.Repeat([]string{worst[:4096]}, 200)
	c.Claimed.Purpose, c.Claimed.Process.Argv, c.Claimed.Labels = worst, many, map[string]string{}
	for i := range 200 {
		c.Claimed.Labels[fmt.Sprint(worst[:400], i)] = worst[:4096]
	}
	long := action.Request{HTTP: &action.HTTP{Method: "POST", Path: strings.Repeat(`\`, wholeText/4-9), Body: []byte(strings.Repeat(`\`, wholeText/4))}}
	c.Request = NewRequest("op", long)
	c.Verified.Words = []string{strings.Repeat("w", capText)}
	doc := mustWrite(t, c)
	if len(doc) > capDocument {
		t.Errorf("the document has %d bytes", len(doc))
	}
	got := readBack(t, doc)
	if !reflect.DeepEqual(got.Verified, c.Verified) || !reflect.DeepEqual(got.Granting, c.Granting) {
		t.Error("what the system established, or what a yes gives, was cut")
	}
	if !strings.Contains(got.Claimed.Purpose, `\+{`) {
		t.Error("what was cut has no mark")
	}
	if n := len(got.Request.Body); n != wholeText/2 || got.Request.NotShown != 0 {
		t.Errorf("of the body %d bytes are shown, and %d are not", n, got.Request.NotShown)
	}
}

// leaves visits every value of a card that can differ.
func leaves(v reflect.Value, visit func(reflect.Value)) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		visit(v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		leaves(v.Elem(), visit)
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), visit)
		}
	case reflect.Slice:
		visit(v)
		for i := range v.Len() {
			leaves(v.Index(i), visit)
		}
	default:
		visit(v)
	}
}

func change(v reflect.Value) {
	switch x := v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(x.Add(time.Millisecond)))
		return
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"another": "label"}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(v.Slice(0, v.Len()-1))
	default:
		panic("cannot change " + v.Kind().String())
	}
}

func TestDigestChangesWithEveryField(t *testing.T) {
	count := 0
	base := filled("f")
	leaves(reflect.ValueOf(&base).Elem(), func(reflect.Value) { count++ })
	seen := map[string]int{Digest(mustWrite(t, base)): -1}
	for i := range count {
		c, n := filled("f"), 0
		leaves(reflect.ValueOf(&c).Elem(), func(v reflect.Value) {
			if n == i {
				change(v)
			}
			n++
		})
		d := Digest(mustWrite(t, c))
		if other, ok := seen[d]; ok {
			t.Errorf("a change of value %d leaves the digest of %d", i, other)
		}
		seen[d] = i
	}
	if count < 90 {
		t.Errorf("only %d values were changed", count)
	}
}

// The bytes of a card, and its digest, are a format: other programs compute
// the digest too.
func TestCanonicalBytesAreStable(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.FixedZone("", 3600))
	agent := Process{
		action.KernelFacts{PID: 4711, PidfsInode: 1 << 63, StartTicks: 99, BootID: "boot", UID: 1000, GID: 1000, PPID: 1, ExePath: "/opt/agent",
			ExeDevice: 64769, ExeInode: 12, ExeState: "file", TTY: "/dev/pts/3", Cgroup: "/user.slice", TracerPID: 5, Container: true},
		action.FileFacts{Size: 120_000_000, Mode: "0755", SHA256: "ab12"},
	}
	c := Card{Format: 1, ApprovalID: "a_1", Tag: "cricket jasper", BrokerInstance: "b_1", ExpiresAt: at,
		Verified: Verified{ChannelID: "c_1", Role: "shim", Agent: agent, Words: []string{"program hidden"}, NotKnown: []string{"which program this is"}, OtherSessions: 2, Chain: []Ancestor{{action.Ancestor{PID: 4710, ExePath: "/bin/sh"}}}, Profile: "desktop", Limits: "It says <what> & \"why\".",
			Shim: &Process{action.KernelFacts{PID: 4712, ExeState: "file"}, action.FileFacts{NotHashed: "too slow"}}},
		Claimed: Claimed{Claims: action.Claims{Program: "agent", Version: "1", Labels: map[string]string{"b": "2", "a": "1"}},
			Purpose: "read \u202E invoices\\   more", Process: action.ProcClaims{Argv: []string{"agent", "--x", "\xff"}, Cwd: "/home/é"}},
		Granting: Granting{Unit: action.UnitOperation, LongestEnd: at.Add(time.Hour), Note: "note",
			Capabilities: []Capability{{Name: "http:x", Target: "http://api.example", Methods: []string{"POST"}, Paths: []string{"/v1/**"}, Budget: "3/h", Insecure: true}}},
		Request: NewRequest("op_1", action.Request{Capability: "http:x", HTTP: &action.HTTP{Method: "POST", Path: "/v1/a", Query: "q=1",
			Headers: []action.Header{{Name: "Accept", Value: "text/plain"}}, Body: []byte("a\nb")}}),
	}
	doc := mustWrite(t, c)
	want, err := os.ReadFile("testdata/card.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(doc, want) {
		t.Errorf("the document is\n%s\nwant\n%s", doc, want)
	}
	if got, want := Digest(doc), "1e6e6cb6d5adf9db9a5bec6a301703e1ffa4d71b16e22c726fef8e9f3dc77a95"; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// P07: what a caller says of itself stands in the claimed part and nowhere else.
func TestP07_ClaimsStandApart(t *testing.T) {
	claimedProcess := action.ProcClaims{Argv: []string{"SAID"}, Cwd: "SAID", Script: "SAID", Runtime: "SAID"}
	shim := action.Process{Kernel: action.KernelFacts{PID: 7, ExePath: "/opt/yett-mcp"}, Claimed: claimedProcess}
	agent := action.Process{Kernel: action.KernelFacts{PID: 6, ExePath: "/opt/agent"}, Claimed: claimedProcess}
	caller := action.Caller{Role: "shim", Peer: shim, Agent: &agent, Words: []string{"program hidden"},
		Claims: action.Claims{Program: "SAID", Version: "SAID", Labels: map[string]string{"SAID": "SAID"}}}
	v := VerifiedOf("c_1", caller)
	if v.Agent.Kernel.PID != 6 || v.Shim == nil || v.Shim.Kernel.PID != 7 {
		t.Errorf("agent %+v, shim %+v", v.Agent.Kernel, v.Shim)
	}
	doc := mustWrite(t, Card{Verified: v, Claimed: ClaimedOf(caller, "SAID")})
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(doc, &parts); err != nil {
		t.Fatal(err)
	}
	for name, part := range parts {
		if n := strings.Count(string(part), "SAID"); name != "claimed" && n > 0 || name == "claimed" && n != 9 {
			t.Errorf("part %s has %d claims", name, n)
		}
	}
	caller.Agent = nil
	if v := VerifiedOf("c_1", caller); v.Agent.Kernel.PID != 7 || v.Shim != nil {
		t.Errorf("a native caller is itself the agent: %+v", v)
	}
	v.Words[0] = "changed"
	if caller.Words[0] != "program hidden" {
		t.Error("a card shares memory with the evidence")
	}
}
