package macos

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"
)

func token(pid int, version uint32) Token {
	var t Token
	for i, w := range []uint32{501, 501, 20, 501, 20, uint32(pid), 100001, version} {
		binary.LittleEndian.PutUint32(t[4*i:], w)
	}
	return t
}

func TestParseToken(t *testing.T) {
	want := token(4711, 9)
	got, err := ParseToken(want[:])
	if err != nil || got.PID() != 4711 || got.Version() != 9 || got.UID() != 501 || got.GID() != 20 || got.RealUID() != 501 || got.Session() != 100001 {
		t.Errorf("%v: %v", got, err)
	}
	zero, negative := token(0, 1), token(-1, 1)
	for _, b := range [][]byte{nil, want[:31], append(want[:], 0), zero[:], negative[:]} {
		if _, err := ParseToken(b); !errors.Is(err, ErrToken) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

func TestParseProcessInfo(t *testing.T) {
	b := make([]byte, ProcessInfoSize)
	put := binary.LittleEndian.PutUint32
	put(b[0:], processTraced)
	put(b[12:], 4711)
	put(b[16:], 1)
	put(b[20:], 501)
	put(b[24:], 20)
	put(b[28:], 501)
	copy(b[48:], "short")
	copy(b[64:], strings.Repeat("n", 32)) // no zero at its end
	put(b[108:], NoTTY)
	binary.LittleEndian.PutUint64(b[120:], 1_790_000_000)
	binary.LittleEndian.PutUint64(b[128:], 123_456)
	p, err := ParseProcessInfo(b)
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != 4711 || p.UID != 501 || p.GID != 20 || len(p.Name) != 32 || p.TTY != NoTTY || !p.Traced() || p.Exiting() || !p.ParentLost ||
		!p.Start.Equal(time.Unix(1_790_000_000, 123_456_000)) || p.StartTicks() != 1_790_000_000_123_456 {
		t.Errorf("%+v", p)
	}
	binary.LittleEndian.PutUint64(b[128:], 1_000_000)
	if _, err := ParseProcessInfo(b); err == nil {
		t.Error("a million microseconds were taken")
	}
	if _, err := ParseProcessInfo(b[:135]); err == nil {
		t.Error("a short answer was taken")
	}
}

// script answers one token or error after another.
type script []any

func (s *script) PeerToken() (Token, error) {
	next := (*s)[0]
	*s = (*s)[1:]
	if err, ok := next.(error); ok {
		return Token{}, err
	}
	return next.(Token), nil
}

// TestBracket: only 32 equal bytes each time hold the channel, and what was
// lost once stays lost.
func TestBracket(t *testing.T) {
	mine, other := token(10, 3), token(11, 1)
	execed := token(10, 4)
	loggedIn := mine
	loggedIn[0] ^= 1 // another audit user, nothing else
	for name, c := range map[string]struct {
		reads script
		holds bool
	}{
		"the same":                {script{mine, mine, mine}, true},
		"an exec":                 {script{mine, mine, execed}, false},
		"a passed descriptor":     {script{mine, other, other}, false},
		"passed and handed back":  {script{mine, other, mine}, false},
		"another audit user":      {script{mine, loggedIn, mine}, false},
		"no answer":               {script{mine, errors.New("EINVAL"), mine}, false},
		"no answer in the middle": {script{mine, mine, errors.New("ENOTCONN")}, false},
	} {
		b, err := NewBracket(&c.reads)
		if err != nil {
			t.Fatal(err)
		}
		first, second := b.Look(AtFirstRequest), b.Look(BeforeRelease)
		if (first == nil && second == nil) != c.holds {
			t.Errorf("%s: %v, %v", name, first, second)
		}
		if first != nil && second != first {
			t.Errorf("%s: lost and found again: %v", name, second)
		}
	}
	for _, reads := range []script{{errors.New("ENOTCONN")}, {Token{}}} {
		if _, err := NewBracket(&reads); err == nil {
			t.Errorf("%v began a channel", reads)
		}
	}
}

func TestJudge(t *testing.T) {
	ok := StatusSigned | StatusValid
	for _, c := range []struct {
		status Status
		team   string
		want   Signer
		fails  error
	}{
		{ok | StatusRuntime, "ABCDE12345", SignedByTeam, nil},
		{ok | StatusPlatformBinary, "", SignedByApple, nil},
		{ok | StatusAdHoc | StatusLinkerSigned, "", SignedByNobody, nil},
		{0, "", SignerUnsigned, ErrUnsigned},
		{StatusValid, "ABCDE12345", SignerUnsigned, ErrUnsigned},
		{StatusSigned | StatusPlatformBinary, "", SignerNotProven, ErrSignature},
		{ok | StatusDebugged | StatusPlatformBinary, "", SignerNotProven, ErrSignature},
		{ok | StatusAdHoc, "ABCDE12345", SignerNotProven, ErrSignature},
		{ok, "", SignerNotProven, ErrSignature},
	} {
		got, err := Judge(c.status, c.team)
		if got != c.want || !errors.Is(err, c.fails) {
			t.Errorf("%#x of team %q: %s, %v; want %s, %v", c.status, c.team, got, err, c.want, c.fails)
		}
	}
	if w := (ok | StatusAdHoc | StatusGetTaskAllow).Words(); len(w) != 3 {
		t.Errorf("%q", w)
	}
	if w := (ok | StatusRuntime).Words(); len(w) != 0 {
		t.Errorf("%q", w)
	}
}

func TestParseName(t *testing.T) {
	good := append([]byte{0, 0, 0, 0, 0, 0, 0, 8 + 4}, "abc\x00........"...)
	if got, err := ParseName(good); err != nil || got != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	for _, b := range [][]byte{nil, good[:8], {0, 0, 0, 0, 0, 0, 0, 8}, {0, 0, 0, 0, 255, 255, 255, 255, 0},
		append([]byte{0, 0, 0, 0, 0, 0, 0, 12}, "a\x00c\x00"...), append([]byte{0, 0, 0, 0, 0, 0, 0, 12}, "abcd"...)} {
		if got, err := ParseName(b); err == nil {
			t.Errorf("%x: %q", b, got)
		}
	}
}

func TestParseCDHash(t *testing.T) {
	b := make([]byte, CDHashSize)
	if _, err := ParseCDHash(b); err == nil {
		t.Error("a hash of zeros was taken")
	}
	b[19] = 1
	if h, err := ParseCDHash(b); err != nil || h.String() != strings.Repeat("0", 39)+"1" {
		t.Errorf("%s, %v", h, err)
	}
	if _, err := ParseCDHash(b[1:]); err == nil {
		t.Error("a short hash was taken")
	}
}

func TestRequirement(t *testing.T) {
	hash := CDHash{0xab, 19: 0xcd}
	const text = `cdhash H"ab000000000000000000000000000000000000cd"`
	for _, c := range []struct {
		s    Signature
		want string
	}{
		{Signature{SignedByNobody, "x", "", hash}, text},
		{Signature{SignedByApple, "com.apple.bash", "", hash}, `anchor apple and identifier "com.apple.bash" and ` + text},
		{Signature{SignedByTeam, "com.example.agent-1", "ABCDE12345", hash},
			`anchor apple generic and certificate 1[field.1.2.840.113635.100.6.2.6] exists and certificate leaf[field.1.2.840.113635.100.6.1.13] exists` +
				` and certificate leaf[subject.OU] = "ABCDE12345" and identifier "com.example.agent-1" and ` + text},
	} {
		if got, err := c.s.Requirement(); err != nil || got != c.want {
			t.Errorf("%s\nwant %s\n%v", got, c.want, err)
		}
	}
}

// TestRequirementIsNotSteered: neither a name nor a team can add to the text.
func TestRequirementIsNotSteered(t *testing.T) {
	hash := CDHash{1}
	for _, s := range []Signature{
		{SignedByTeam, `x" or anchor apple or identifier "x`, "ABCDE12345", hash},
		{SignedByTeam, `x\`, "ABCDE12345", hash},
		{SignedByTeam, "x\ny", "ABCDE12345", hash},
		{SignedByTeam, "x/*", "ABCDE12345", hash},
		{SignedByTeam, "ｘ", "ABCDE12345", hash},
		{SignedByTeam, "", "ABCDE12345", hash},
		{SignedByTeam, strings.Repeat("x", 256), "ABCDE12345", hash},
		{SignedByTeam, "x", `ABCDE1234"`, hash},
		{SignedByTeam, "x", "abcde12345", hash},
		{SignedByTeam, "x", "", hash},
		{SignedByApple, `x" or "`, "", hash},
		{SignedByApple, "x", "", CDHash{}},
		{SignedByNobody, "x", "", CDHash{}},
		{SignerUnsigned, "x", "", hash},
		{SignerNotProven, "x", "", hash},
	} {
		if got, err := s.Requirement(); err == nil {
			t.Errorf("%+v: %s", s, got)
		}
	}
}

func FuzzRequirement(f *testing.F) {
	f.Add("com.example", "ABCDE12345")
	f.Fuzz(func(t *testing.T, id, team string) {
		text, err := Signature{SignedByTeam, id, team, CDHash{1}}.Requirement()
		if err == nil && (strings.Count(text, `"`) != 6 || strings.ContainsAny(text, "\\\n/#")) {
			t.Error(text)
		}
	})
}
