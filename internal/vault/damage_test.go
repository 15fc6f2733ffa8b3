package vault

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// openImage is the whole way from bytes to an unlocked vault.
func openImage(image []byte, m made) (*Vault, error) {
	v, err := Parse(image)
	if err != nil {
		return nil, err
	}
	if err := v.Unlock(SlotPassphrase, m.pass.Unlock); err != nil {
		return nil, err
	}
	return v, nil
}

func refused(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, ErrWrongKey) || errors.Is(err, ErrVersion)
}

func TestEveryByteFlipped(t *testing.T) {
	v, m := withSecrets(t)
	image := v.Image()
	for i := range image {
		for _, bit := range []byte{0x01, 0x20, 0x80} {
			image[i] ^= bit
			if v, err := openImage(image, m); !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d, bit %#x: %v, %v", i, bit, v, err)
			}
			image[i] ^= bit
		}
	}
}

// An attacker corrects the checksum; then the seals alone must hold. Only a
// damaged wrapped key of the slot in use looks like a wrong key, and the
// version like another release's.
func TestEveryByteFlippedChecksumMended(t *testing.T) {
	v, m := withSecrets(t)
	image := v.Image()
	for i := range image[:len(image)-sha256.Size] {
		for _, bit := range []byte{0x01, 0x20, 0x80} {
			image[i] ^= bit
			if v, err := openImage(mend(image), m); !refused(err) {
				t.Fatalf("byte %d, bit %#x: %v, %v", i, bit, v, err)
			}
			image[i] ^= bit
		}
	}
}

func mend(image []byte) []byte {
	end := len(image) - sha256.Size
	sum := sha256.Sum256(image[:end])
	return append(bytes.Clone(image[:end]), sum[:]...)
}

func TestTruncatedAndExtended(t *testing.T) {
	v, m := withSecrets(t)
	image := v.Image()
	for n := range image {
		if _, err := openImage(image[:n], m); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if n > len(magic)+len(version)+sha256.Size {
			if _, err := openImage(mend(image[:n]), m); !refused(err) {
				t.Fatalf("%d bytes, checksum mended: %v", n, err)
			}
		}
	}
	long := append(bytes.Clone(image), 0)
	for _, b := range [][]byte{long, mend(long), append(bytes.Clone(image), image...)} {
		if _, err := openImage(b, m); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes too many: %v", len(b)-len(image), err)
		}
	}
}

// A damaged file is reported and left as it is.
func TestDamagedFileUntouched(t *testing.T) {
	v, m := withSecrets(t)
	path := filepath.Join(v.dir, FileName)
	for _, content := range [][]byte{{}, []byte("x"), v.Image()[:200], bytes.Repeat([]byte{0}, 5000)} {
		must(t, os.WriteFile(path, content, 0o600))
		before := readDir(t, v.dir)
		_, err := Load(v.dir)
		wantErr(t, err, ErrDamaged)
		wantErr(t, v.SetLedgerHead([]byte("x")), ErrChanged)
		_, err = Create(v.dir, []byte(goodPassphrase))
		wantErr(t, err, ErrExists)
		after := readDir(t, v.dir)
		delete(before, lockName)
		delete(after, lockName)
		if len(before) != len(after) || !bytes.Equal(after[FileName], content) {
			t.Error("a damaged file was touched")
		}
	}
	must(t, os.Truncate(path, maxFile+1))
	_, err := Load(v.dir)
	wantErr(t, err, ErrDamaged)
	_ = m
}

// Another vault's file, or parts of another one or of an earlier generation of
// this one, do not open.
func TestSwapped(t *testing.T) {
	v, m := newVault(t)
	early := v.file
	must(t, v.SetLedgerHead([]byte("x")))
	late := v.file
	spliced := append(append(bytes.Clone(late.bound), early.sealed...), make([]byte, sha256.Size)...)
	_, err := openImage(mend(spliced), m)
	wantErr(t, err, ErrDamaged)

	other := filepath.Join(t.TempDir(), "other")
	_, err = Create(other, []byte(goodPassphrase))
	must(t, err)
	o, err := Load(other)
	must(t, err)
	wantErr(t, o.Unlock(SlotPassphrase, m.pass.Unlock), ErrWrongKey)

	// The other vault's audit key in this one's header, all else right.
	h := late.header
	h.AuditPublicKey = o.AuditPublicKey()
	_, err = openImage(reheaded(t, late, h), m)
	wantErr(t, err, ErrDamaged)
	// Even sealed so: the private key has the last word.
	f, err := sealContent(h, v.open.keys, v.open.content)
	must(t, err)
	_, err = openImage(f.raw, m)
	wantErr(t, err, ErrDamaged)
	// Slots in another order would give approval keys to the wrong slot.
	h = late.header
	h.Slots = []sealedSlot{h.Slots[1], h.Slots[0]}
	_, err = openImage(reheaded(t, late, h), m)
	wantErr(t, err, ErrDamaged)
}

// reheaded puts another header before the payload of f.
func reheaded(t testing.TB, f *file, h header) []byte {
	t.Helper()
	text, err := json.Marshal(h)
	must(t, err)
	return withHeader(text, f.sealed)
}

func withHeader(text, sealed []byte) []byte {
	raw := append([]byte(magic+version), binary.BigEndian.AppendUint32(nil, uint32(len(text)))...)
	raw = append(append(raw, text...), sealed...)
	sum := sha256.Sum256(raw)
	return append(raw, sum[:]...)
}

func TestLaterVersion(t *testing.T) {
	v, m := newVault(t)
	image := v.Image()
	image[len(magic)] = '3'
	_, err := openImage(mend(image), m)
	wantErr(t, err, ErrVersion)
	if errors.Is(err, ErrDamaged) {
		t.Error("a later version is taken for damage")
	}
}

func TestKDFBoundsBeforeAllocation(t *testing.T) {
	v, _ := newVault(t)
	salt := make([]byte, 16)
	bad := []KDF{
		{}, {Salt: salt[:15], Time: 3, MemoryKiB: 64 << 10, Threads: 1},
		{Salt: make([]byte, 65), Time: 3, MemoryKiB: 64 << 10, Threads: 1},
		{Salt: salt, Time: 1, MemoryKiB: 64 << 10, Threads: 1},
		{Salt: salt, Time: 17, MemoryKiB: 64 << 10, Threads: 1},
		{Salt: salt, Time: 3, MemoryKiB: 19<<10 - 1, Threads: 1},
		{Salt: salt, Time: 3, MemoryKiB: 1<<20 + 1, Threads: 1},
		{Salt: salt, Time: math.MaxUint32, MemoryKiB: math.MaxUint32, Threads: 255},
		{Salt: salt, Time: 3, MemoryKiB: 64 << 10, Threads: 0},
		{Salt: salt, Time: 3, MemoryKiB: 64 << 10, Threads: 17},
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, k := range bad {
		_, err := Derive([]byte(goodPassphrase), k)
		wantErr(t, err, ErrKDF)
		h := v.file.header
		h.Slots = append([]sealedSlot(nil), h.Slots...)
		h.Slots[0].KDF = k
		_, err = Parse(reheaded(t, v.file, h))
		wantErr(t, err, ErrDamaged)
		wantErr(t, err, ErrKDF)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
		t.Errorf("%d bytes were taken for parameters that are refused", got)
	}
}

// TestM15: the header has one encoding, so nothing can be read two ways.
func TestM15_HeaderHasOneEncoding(t *testing.T) {
	v, _ := newVault(t)
	good, err := json.Marshal(v.file.header)
	must(t, err)
	if _, err := Parse(withHeader(good, v.file.sealed)); err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) []byte {
		b := bytes.Replace(good, []byte(old), []byte(new), 1)
		if bytes.Equal(b, good) {
			t.Fatalf("%q is not in the header", old)
		}
		return b
	}
	for name, bad := range map[string][]byte{
		"unknown member":    swap(`{"generation"`, `{"extra":1,"generation"`),
		"duplicate member":  swap(`{"generation"`, `{"generation":9,"generation"`),
		"folded member":     swap(`"generation"`, `"Generation"`),
		"folded duplicate":  swap(`{"generation"`, `{"GENERATION":9,"generation"`),
		"long s":            swap(`"slots"`, `"ſlots"`),
		"within a slot":     swap(`{"name"`, `{"extra":1,"name"`),
		"within a kdf":      swap(`{"salt"`, `{"salt":"","salt"`),
		"kelvin sign":       swap(`"memory_kib"`, "\"memory_\u212aib\""),
		"space":             swap(`,"slots"`, `, "slots"`),
		"trailing space":    append(bytes.Clone(good), ' '),
		"trailing data":     append(bytes.Clone(good), "{}"...),
		"newline in base64": swap(`"audit_public_key":"`, `"audit_public_key":"\n`),
		"escaped name":      swap(`"passphrase"`, `"\u0070assphrase"`),
		"same name twice":   swap(`"recovery"`, `"passphrase"`),
		"unknown slot":      swap(`"recovery"`, `"recoverx"`),
		"no slots":          append(append(bytes.Clone(good[:bytes.IndexByte(good, '[')+1]), ']'), good[bytes.LastIndexByte(good, ']')+1:]...),
		"null":              []byte(`null`),
		"empty":             {},
		"generation 0":      swap(`"generation":1`, `"generation":0`),
		"generation 1.0":    swap(`"generation":1`, `"generation":1.0`),
	} {
		if _, err := Parse(withHeader(bad, v.file.sealed)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeaderLengthBeforeAllocation(t *testing.T) {
	v, _ := newVault(t)
	image := v.Image()
	for _, n := range []uint32{0, 1, uint32(len(image)), math.MaxInt32, math.MaxUint32} {
		binary.BigEndian.PutUint32(image[len(magic)+len(version):], n)
		_, err := Parse(mend(image))
		wantErr(t, err, ErrDamaged)
	}
	// A header that is all there and well formed, only too long.
	text, err := json.Marshal(v.file.header)
	must(t, err)
	long := append(text, bytes.Repeat([]byte(" "), maxHeader)...)
	_, err = Parse(withHeader(long, v.file.sealed))
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "longer than allowed") {
		t.Errorf("a header of %d bytes: %v", len(long), err)
	}
}

func FuzzHeader(f *testing.F) {
	seeds := 0
	v, _ := newVault(f)
	good, err := json.Marshal(v.file.header)
	must(f, err)
	for _, s := range [][]byte{
		good, append(bytes.Clone(good), ' '), bytes.ToUpper(good), []byte(`{}`), []byte(`null`),
		[]byte(`{"generation":1,"slots":[{"name":"passphrase","kdf":{"salt":"","time":0,"memory_kib":0,"threads":0},"wrapped":null}],"audit_public_key":null}`),
	} {
		f.Add(s)
		seeds++
	}
	if seeds == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(h)
		must(t, err)
		if !bytes.Equal(again, b) {
			t.Fatalf("two encodings of one header:\n%s\n%s", b, again)
		}
		for _, s := range h.Slots {
			must(t, s.KDF.check())
		}
	})
}

func FuzzFile(f *testing.F) {
	v, m := newVault(f)
	seeds := [][]byte{v.Image(), v.Image()[:100], []byte(magic), []byte(magic + version), {}}
	for _, s := range seeds {
		f.Add(s)
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > sha256.Size {
			b = mend(b) // or the fuzzer never gets past the checksum
		}
		w, err := openImage(b, m)
		if err != nil {
			if !refused(err) {
				t.Fatal(err)
			}
			return
		}
		defer w.Lock()
		if !bytes.Equal(b, v.Image()) {
			t.Fatal("another file opens")
		}
	})
}
