package bodies

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Short bodies that come one after the other share files, each session's its own,
// and are read from there, before and after a restart.
func TestShortBodiesShareFiles(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	var names []Name
	for i := range 300 {
		names = append(names, Name{int64(i + 1), fmt.Sprint("s_", i%3), Streams()[i%4]})
		put(t, s, names[i], []byte(names[i].file()))
	}
	check := func(s *Store) {
		t.Helper()
		if kept, _ := s.Kept(); kept != len(names) {
			t.Errorf("%d bodies", kept)
		}
		for _, n := range names {
			if got, err := get(t, s, n); err != nil || string(got) != n.file() {
				t.Fatalf("%v: %q, %v", n, got, err)
			}
		}
	}
	check(s)
	onDiskNow(s)
	check(s)
	if got := files(t, dir); len(got) > 100 {
		t.Errorf("%d files", len(got))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(openStore(t, dir, Options{}))
}

// somePack is a pack of bodies that s sealed.
func somePack(t testing.TB, s *Store, names []Name) []byte {
	t.Helper()
	var all []*waiting
	for _, n := range names {
		salt := newSalt()
		seal, err := s.sealerFor(n.file(), salt)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &waiting{name: n, whole: seal.seal(append([]byte(magic), salt...), []byte(n.file()), 0, true)})
	}
	whole, _ := packed(all)
	return whole
}

// Whatever stands in the head of a pack, a body is read under its own name or not
// at all; and a pack that was cut is removed.
func TestAChangedPackGivesNoOtherBody(t *testing.T) {
	names := []Name{{1, "s_1", Body}, {2, "s_1", Body}, {2, "s_1", Stderr}, {3, "s_1", Body}}
	good := somePack(t, openStore(t, t.TempDir(), Options{}), names)
	open := func(pack []byte) (s *Store, dir string) {
		t.Helper()
		dir = t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, DirName), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, DirName, names[0].file()+packSuffix), pack, 0o600); err != nil {
			t.Fatal(err)
		}
		return openStore(t, dir, Options{}), dir
	}
	read := func(s *Store) (right int) {
		t.Helper()
		for _, n := range names {
			got, err := get(t, s, n)
			switch {
			case err == nil && string(got) == n.file():
				right++
			case err == nil:
				t.Errorf("%v is %q", n, got)
			case !errors.Is(err, ErrGone) && !errors.Is(err, ErrDamaged):
				t.Errorf("%v: %v", n, err)
			}
		}
		return right
	}
	if s, _ := open(good); read(s) != len(names) {
		t.Error("a good pack is not read")
	}
	for i := range packHead + len(names)*packRecord {
		changed := bytes.Clone(good)
		changed[i] ^= 1
		if s, _ := open(changed); read(s) == len(names) {
			t.Errorf("byte %d says nothing", i)
		}
	}
	swapped := bytes.Clone(good)
	first, second := swapped[packHead:packHead+8], swapped[packHead+packRecord:packHead+packRecord+8]
	swapped[packHead+7], swapped[packHead+packRecord+7] = second[7], first[7]
	if s, _ := open(swapped); read(s) != 2 {
		t.Error("two bodies changed places")
	}
	for _, size := range []int{0, packHead - 1, packHead + 1, len(good) - 1} {
		if s, dir := open(good[:size]); read(s) != 0 || len(files(t, dir)) != 0 {
			t.Errorf("cut to %d bytes: left %v", size, files(t, dir))
		}
	}
}

func FuzzParsePack(f *testing.F) {
	good := somePack(f, openStore(f, f.TempDir(), Options{}), []Name{{1, "s_1", Body}, {2, "s_1", Stderr}})
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(packMagic + "\x00\x00"))
	f.Add([]byte(packMagic + "\xff\xff" + strings.Repeat("\x00", 64)))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, parts, ok := parsePack("s_1", bytes.NewReader(b), int64(len(b)))
		if !ok {
			return
		}
		end := int64(packHead + len(names)*packRecord)
		for i, p := range parts {
			if !names[i].valid() || p.from != end || p.size < int64(headerSize+tagSize) {
				t.Fatalf("%v at %v after %d", names[i], p, end)
			}
			end += p.size
		}
		if len(names) == 0 || end != int64(len(b)) {
			t.Fatalf("%d bodies in %d of %d bytes", len(names), end, len(b))
		}
	})
}
