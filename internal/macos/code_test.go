package macos

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// program is a Go program for macOS on arm64: its linker signs ad hoc.
var program = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "macho")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return nil, err
	}
	c := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "program"), source)
	c.Env = append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0", "GO111MODULE=off")
	if out, err := c.CombinedOutput(); err != nil {
		return nil, errors.New(string(out))
	}
	return os.ReadFile(filepath.Join(dir, "program"))
})

func readProgram(t testing.TB) ([]byte, Code) {
	t.Helper()
	raw, err := program()
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Clone(raw)
	all, err := ReadCode(bytes.NewReader(raw), int64(len(raw)))
	if err != nil || len(all) != 1 {
		t.Fatalf("%d codes, %v", len(all), err)
	}
	return raw, all[0]
}

func TestReadCode(t *testing.T) {
	raw, c := readProgram(t)
	if c.CPU != macho.CpuArm64 || c.Identifier != "a.out" || c.Team != "" || c.Flags&StatusAdHoc == 0 {
		t.Errorf("%v %q of team %q, flags %#x", c.CPU, c.Identifier, c.Team, c.Flags)
	}
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
	// The hash once more, from the file alone: the directory is the first blob.
	directory := raw[c.limit+20:]
	sum := sha256.Sum256(directory[:binary.BigEndian.Uint32(directory[4:])])
	if !bytes.Equal(c.CDHash[:], sum[:CDHashSize]) {
		t.Errorf("%s, want %x", c.CDHash, sum[:CDHashSize])
	}
}

// TestEveryByteOfCodeCounts flips each byte of the signature, and bytes of
// every page: either the file is refused, or its name changes, or a page does
// not verify.
func TestEveryByteOfCodeCounts(t *testing.T) {
	raw, was := readProgram(t)
	signature := raw[was.limit:]
	end := 20 + int(binary.BigEndian.Uint32(signature[24:])) // what follows is padding, which has to be zero
	for i := range signature {
		signature[i] ^= 0x55
		now, err := parseSignature(signature)
		signature[i] ^= 0x55
		if err == nil && now.CDHash == was.CDHash {
			t.Errorf("byte %d of the signature (of %d) counts for nothing", i, end)
		}
	}
	page := 1 << was.pageBits
	for i := range was.pages {
		for _, at := range []int{0, i % page, page - 1} {
			at = min(i*page+at, int(was.limit)-1)
			raw[at] ^= 1
			err := was.withFile(raw).verifyPage(i)
			raw[at] ^= 1
			if err == nil {
				t.Errorf("byte %d of the code counts for nothing", at)
			}
		}
	}
}

func (c Code) withFile(raw []byte) Code {
	c.file = bytes.NewReader(raw)
	return c
}

// TestFilesThatAreNone refuses what is cut, grown, unsigned or no Mach-O.
func TestFilesThatAreNone(t *testing.T) {
	raw, c := readProgram(t)
	for name, b := range map[string][]byte{
		"nothing":          nil,
		"an ELF program":   append([]byte("\x7fELF"), make([]byte, 100)...),
		"a cut file":       raw[:len(raw)-1],
		"a grown file":     append(bytes.Clone(raw), 0),
		"a cut signature":  raw[:c.limit+30],
		"only its loads":   raw[:4096],
		"a universal head": {0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 200},
	} {
		if all, err := ReadCode(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s: read %d codes", name, len(all))
		}
	}
	unsigned := bytes.Clone(raw)
	f, err := macho.NewFile(bytes.NewReader(unsigned))
	if err != nil {
		t.Fatal(err)
	}
	at := 32 // the load commands follow the header
	for _, l := range f.Loads {
		if binary.LittleEndian.Uint32(l.Raw()) == loadCodeSignature {
			binary.LittleEndian.PutUint32(unsigned[at:], 0x26) // LC_FUNCTION_STARTS, of the same form
		}
		at += len(l.Raw())
	}
	if _, err := ReadCode(bytes.NewReader(unsigned), int64(len(unsigned))); !errors.Is(err, ErrNoSignature) {
		t.Errorf("unsigned: %v", err)
	}
}

// universal puts one architecture's file into a universal file, twice.
func universal(thin []byte) []byte {
	const align = 1 << 14
	head := []uint32{0xcafebabe, 2}
	var out []byte
	for i, cpu := range []macho.Cpu{macho.CpuArm64, macho.CpuAmd64} {
		at := align * (1 + i*((len(thin)+align-1)/align))
		out = append(out, make([]byte, at-len(out))...)
		slice := bytes.Clone(thin)
		binary.LittleEndian.PutUint32(slice[4:], uint32(cpu)) // spoils its first page, not its directory
		out = append(out, slice...)
		head = append(head, uint32(cpu), 0, uint32(at), uint32(len(thin)), 14)
	}
	for i, w := range head {
		binary.BigEndian.PutUint32(out[4*i:], w)
	}
	return out
}

func TestReadUniversal(t *testing.T) {
	raw, c := readProgram(t)
	both := universal(raw)
	all, err := ReadCode(bytes.NewReader(both), int64(len(both)))
	if err != nil || len(all) != 2 {
		t.Fatalf("%d codes, %v", len(all), err)
	}
	if all[0].CDHash != c.CDHash || all[0].Verify() != nil {
		t.Errorf("the first is %s: %v", all[0].CDHash, all[0].Verify())
	}
	if all[1].CPU != macho.CpuAmd64 || all[1].Verify() == nil {
		t.Errorf("the second, whose first page was changed, verifies")
	}
}

// FuzzParseSignature wants no panic, and that what is read is bounded by what
// was given.
func FuzzParseSignature(f *testing.F) {
	raw, c := readProgram(f)
	f.Add(raw[c.limit:])
	f.Add([]byte{0xfa, 0xde, 0x0c, 0xc0, 0, 0, 0, 12, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseSignature(b)
		if err == nil && (len(c.pages)*c.hash.size > len(b) || c.limit <= 0) {
			t.Errorf("%d pages of %d bytes", len(c.pages), len(b))
		}
	})
}

// sign makes a signature over one page of code, as codesign(1) lays it out:
// the directory, a blob of requirements (slot 2), one of entitlements (slot 5)
// and the CMS blob, which no directory covers.
func sign(page []byte) []byte {
	blob := func(magic uint32, body string) []byte {
		b := binary.BigEndian.AppendUint32(nil, magic)
		return append(binary.BigEndian.AppendUint32(b, uint32(8+len(body))), body...)
	}
	requirements, entitlements := blob(0xfade0c01, "\x00\x00\x00\x00"), blob(0xfade7171, "<plist/>")
	const id, specials, size = "com.example.agent\x00", 5, 32
	hashAt := headerSize + len(id) + specials*size
	d := make([]byte, hashAt+size)
	put := func(at int, w uint32) { binary.BigEndian.PutUint32(d[at:], w) }
	put(0, magicCodeDirectory)
	put(4, uint32(len(d)))
	put(8, 0x20001)
	put(16, uint32(hashAt))
	put(20, headerSize)
	put(24, specials)
	put(28, 1)
	put(32, uint32(len(page)))
	d[36], d[37], d[39] = size, 2, 12
	copy(d[headerSize:], id)
	slot := func(n int, of []byte) {
		sum := sha256.Sum256(of)
		copy(d[hashAt-n*size:], sum[:])
	}
	slot(2, requirements)
	slot(5, entitlements)
	slot(0, page)
	blobs := []struct {
		slot uint32
		b    []byte
	}{{slotCodeDirectory, d}, {2, requirements}, {5, entitlements}, {slotSignature, blob(0xfade0b01, "who signed")}}
	head, body := binary.BigEndian.AppendUint32(nil, uint32(len(blobs))), []byte(nil)
	for _, x := range blobs {
		head = binary.BigEndian.AppendUint32(head, x.slot)
		head = binary.BigEndian.AppendUint32(head, uint32(12+8*len(blobs)+len(body)))
		body = append(body, x.b...)
	}
	out := binary.BigEndian.AppendUint32(nil, magicSuperBlob)
	out = binary.BigEndian.AppendUint32(out, uint32(8+len(head)+len(body)))
	return append(append(out, head...), body...)
}

// TestBlobsOfASignature: each byte counts, but for the CMS blob, which
// Security.framework checks; zeros may follow, and nothing else.
func TestBlobsOfASignature(t *testing.T) {
	raw := sign([]byte("code"))
	was, err := parseSignature(raw)
	if err != nil || was.Identifier != "com.example.agent" || len(was.blobs) != 4 {
		t.Fatalf("%+v, %v", was, err)
	}
	cms := bytes.Index(raw, []byte("who signed"))
	for i := range raw {
		raw[i] ^= 0x55
		now, err := parseSignature(raw)
		raw[i] ^= 0x55
		covered := i < cms-8 || i >= cms-4 && i < cms // the magic of the CMS blob is its own, too
		if noticed := err != nil || now.CDHash != was.CDHash; covered && !noticed {
			t.Errorf("byte %d of %d counts for nothing", i, len(raw))
		}
	}
	if _, err := parseSignature(append(bytes.Clone(raw), 0, 0, 0)); err != nil {
		t.Errorf("padding: %v", err)
	}
	if _, err := parseSignature(append(bytes.Clone(raw), 0, 1)); err == nil {
		t.Error("a byte after the signature was taken")
	}
	foreign := bytes.Clone(raw)
	binary.BigEndian.PutUint32(foreign[12+8*2:], 6) // the entitlements in a slot that no digest is of
	if _, err := parseSignature(foreign); err == nil {
		t.Error("a blob in a slot without a digest was taken")
	}
}
