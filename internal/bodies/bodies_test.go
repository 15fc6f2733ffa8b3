package bodies

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var testKey = bytes.Repeat([]byte{0x5a}, 32)

func openStore(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // a second time does no harm
	s.Unlock(testKey)
	return s
}

func put(t testing.TB, s *Store, n Name, body []byte) {
	t.Helper()
	w, err := s.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// onDiskNow returns when everything is written.
func onDiskNow(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.fresh.order) > 0 {
		s.fresh.changed.Wait()
	}
}

func get(t testing.TB, s *Store, n Name) ([]byte, error) {
	t.Helper()
	r, err := s.Open(n)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, DirName))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWhatIsKeptIsRead(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	sizes := []int{0, 1, 1200, chunkSize - 1, chunkSize, chunkSize + 1, 2 * chunkSize, 3*chunkSize + 77, 1 << 20}
	all := map[Name][]byte{}
	for i, size := range sizes {
		n, body := Name{int64(i + 1), "s_1", Streams()[i%4]}, random(size)
		all[n] = body
		put(t, s, n, body)
	}
	for n, body := range all {
		if got, err := get(t, s, n); err != nil || !bytes.Equal(got, body) {
			t.Errorf("at once: %d bytes: %d came back, %v", len(body), len(got), err)
		}
	}
	s.Close()
	s = openStore(t, dir, Options{}) // and after a restart
	for n, body := range all {
		got, err := get(t, s, n)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes: %d came back, %v", len(body), len(got), err)
		}
		r, err := s.Open(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{0, 1, chunkSize - 1, chunkSize, r.Size() - 1, r.Size(), r.Size() + 9} {
			p := make([]byte, 300)
			m, err := r.ReadAt(p, at)
			want := body[min(max(at, 0), int64(len(body))):]
			want = want[:min(len(want), len(p))]
			if at >= 0 && (!bytes.Equal(p[:m], want) || m < len(p) && err != io.EOF) {
				t.Errorf("%d bytes, at %d: %d, %v", len(body), at, m, err)
			}
		}
		if _, err := r.ReadAt(make([]byte, 1), -1); err == nil {
			t.Error("a negative offset is read")
		}
		r.Close()
	}
	if kept, _ := s.Kept(); kept != len(sizes) {
		t.Errorf("%d are kept", kept)
	}
}

// A09: nothing of a body stands on the disk in the clear, not even while it is
// written.
func TestA09_NoPlainBodyOnDisk(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	canary := []byte("canary-3f9c2e71-of-a-body")
	put(t, s, Name{1, "s_1", Body}, canary)
	put(t, s, Name{2, "s_1", Body}, bytes.Repeat(canary, 20_000))
	onDiskNow(s)
	w, err := s.Create(Name{3, "s_1", Body})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat(canary, 20_000)); err != nil {
		t.Fatal(err)
	}
	names := files(t, dir)
	if len(names) != 3 || !slices.Contains(names, "3.s_1.body.part") {
		t.Fatalf("files: %v", names)
	}
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(dir, DirName, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, canary[:12]) {
			t.Errorf("%s has the body in the clear", name)
		}
		if info, _ := os.Stat(filepath.Join(dir, DirName, name)); info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	w.Abort()
	if names := files(t, dir); len(names) != 2 {
		t.Errorf("what was given up stays: %v", names)
	}
}

// Without the key, under another key, or under another name a body does not
// open; nor does one of another session, which is another name.
func TestABodyOpensUnderItsKeyAndNameOnly(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	own := Name{7, "s_own", Body}
	put(t, s, own, []byte("for one session"))
	onDiskNow(s)
	for _, n := range []Name{{7, "s_other", Body}, {7, "s_own", Stderr}, {8, "s_own", Body}} {
		if _, err := get(t, s, n); !errors.Is(err, ErrGone) {
			t.Errorf("%v: %v", n, err)
		}
		// Somebody renames the file: the name is part of the key.
		raw, err := os.ReadFile(filepath.Join(dir, DirName, own.file()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, DirName, n.file()), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := get(t, openStore(t, dir, Options{}), n); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v under another name: %v", n, err)
		}
	}
	s.Lock()
	if _, err := get(t, s, own); !errors.Is(err, ErrLocked) {
		t.Errorf("locked: %v", err)
	}
	if _, err := s.Create(own); !errors.Is(err, ErrLocked) {
		t.Errorf("locked, a new one: %v", err)
	}
	s.Unlock(bytes.Repeat([]byte{1}, 32))
	if _, err := get(t, s, own); !errors.Is(err, ErrDamaged) {
		t.Errorf("another key: %v", err)
	}
}

// Every change of a file is noticed: flipped bits, cuts at every border and
// between, chunks that are swapped, repeated or taken from another body.
func TestAChangedBodyDoesNotOpen(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	n := Name{1, "s_1", Body}
	put(t, s, n, random(3*chunkSize+100))
	put(t, s, Name{2, "s_1", Body}, random(3*chunkSize+100))
	path := filepath.Join(dir, DirName, n.file())
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(filepath.Join(dir, DirName, "2.s_1.body"))
	if err != nil {
		t.Fatal(err)
	}
	chunk := func(b []byte, i int) []byte { return b[headerSize+i*sealedSize : headerSize+(i+1)*sealedSize] }
	changed := map[string][]byte{
		"a chunk of another body": bytes.Join([][]byte{raw[:headerSize], chunk(other, 0), raw[headerSize+sealedSize:]}, nil),
		"swapped chunks":          bytes.Join([][]byte{raw[:headerSize], chunk(raw, 1), chunk(raw, 0), raw[headerSize+2*sealedSize:]}, nil),
		"a chunk twice":           bytes.Join([][]byte{raw[:headerSize+sealedSize], raw[headerSize:]}, nil),
		"more behind it":          append(bytes.Clone(raw), 0),
		"only a header":           raw[:headerSize],
		"nothing":                 {},
	}
	for _, at := range []int{0, len(magic), headerSize - 1, headerSize, headerSize + sealedSize - 1, headerSize + sealedSize, len(raw) - 1} {
		b := bytes.Clone(raw)
		b[at] ^= 1
		changed["flipped at "+time.Duration(at).String()] = b
	}
	for i := range 4 {
		for _, d := range []int{-1, 0, 1, tagSize, tagSize + 1} {
			if at := headerSize + i*sealedSize + d; at < len(raw) {
				changed["cut at "+time.Duration(at).String()] = raw[:at]
			}
		}
	}
	for what, b := range changed {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := get(t, s, n); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
}

// A cut body is refused before a byte of it is given: its size would be wrong.
func TestACutBodyDoesNotOpenAtAll(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	put(t, s, Name{1, "s_1", Body}, random(3*chunkSize))
	if err := os.Truncate(filepath.Join(dir, DirName, "1.s_1.body"), int64(headerSize+2*sealedSize)); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Open(Name{1, "s_1", Body}); !errors.Is(err, ErrDamaged) {
		t.Errorf("%+v, %v", r, err)
	}
}

// What a crash leaves: the unfinished and the empty are removed at the start,
// whole ones stay, and files of nobody's making are not touched.
func TestAStartRemovesWhatIsTorn(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	put(t, s, Name{1, "s_1", Body}, []byte("whole"))
	onDiskNow(s)
	w, err := s.Create(Name{2, "s_1", Body})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(random(3 * chunkSize)); err != nil { // and now the process dies
		t.Fatal(err)
	}
	for name, content := range map[string]string{"3.s_1.stderr": "", "4.s_1.body": magic, "notes.txt": "", "5.s_1.body.part": "x", "06.s_1.body": "", "6.s 1.body": "", "7.s_1.bodies": ""} {
		if err := os.WriteFile(filepath.Join(dir, DirName, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = openStore(t, dir, Options{})
	if got := files(t, dir); !slices.Equal(got, []string{"06.s_1.body", "1.s_1.body", "6.s 1.body", "7.s_1.bodies", "notes.txt"}) {
		t.Errorf("left: %v", got)
	}
	if got, err := get(t, s, Name{1, "s_1", Body}); err != nil || string(got) != "whole" {
		t.Errorf("%q, %v", got, err)
	}
	// A number that comes again, since an older ledger was put back, replaces.
	put(t, s, Name{1, "s_1", Body}, []byte("newer"))
	if got, err := get(t, s, Name{1, "s_1", Body}); err != nil || string(got) != "newer" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNoLinkIsFollowed(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "stranger")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, DirName)); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir, Options{}); err == nil {
		s.Close()
		t.Error("a directory behind a link is used")
	}
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, DirName), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, DirName), 0o755); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir, Options{}); err == nil {
		s.Close()
		t.Error("a directory that others look into is used")
	}
	dir = t.TempDir()
	s := openStore(t, dir, Options{})
	target := filepath.Join(elsewhere, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1.s_1.body", "2.s_1.body.part"} {
		if err := os.Symlink(target, filepath.Join(dir, DirName, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, Name{1, "s_1", Body}, []byte("x"))
	put(t, s, Name{2, "s_1", Body}, random(2*chunkSize))
	onDiskNow(s)
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("what a link points at became %q, %v", got, err)
	}
}

func TestBodiesGoByAge(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{MaxAge: time.Hour})
	put(t, s, Name{1, "s_1", Body}, []byte("old"))
	if got, err := get(t, s, Name{1, "s_1", Body}); err != nil || string(got) != "old" {
		t.Fatalf("%q, %v", got, err)
	}
	s.Expire(time.Now().Add(59 * time.Minute))
	if kept, _ := s.Kept(); kept != 1 {
		t.Fatal("it went too early")
	}
	s.Expire(time.Now().Add(61 * time.Minute))
	if kept, size := s.Kept(); kept != 0 || size != 0 || len(files(t, dir)) != 0 {
		t.Errorf("%d bodies of %d bytes stay, files %v", kept, size, files(t, dir))
	}
	if _, err := get(t, s, Name{1, "s_1", Body}); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	// The age is that of the file: a restart does not make it younger.
	put(t, s, Name{2, "s_1", Body}, []byte("old"))
	onDiskNow(s)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, DirName, "2.s_1.body"), old, old); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir, Options{MaxAge: time.Hour})
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("after the restart: %v", got)
	}
}

// The store stays within its bound, over all sessions; one that floods loses its
// own and not the others'.
func TestBodiesGoBySize(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{MaxTotal: 1 << 20, MaxFiles: 1000})
	quiet := Name{1, "s_quiet", Body}
	put(t, s, quiet, random(100_000))
	for i := range 60 {
		put(t, s, Name{int64(i + 2), "s_flood", Body}, random(50_000))
		if kept, size := s.Kept(); size > 1<<20 {
			t.Fatalf("%d bodies of %d bytes", kept, size)
		}
	}
	if _, err := get(t, s, quiet); err != nil {
		t.Errorf("the quiet session's body: %v", err)
	}
	if _, err := get(t, s, Name{61, "s_flood", Body}); err != nil {
		t.Errorf("the newest: %v", err)
	}
	if _, err := get(t, s, Name{2, "s_flood", Body}); !errors.Is(err, ErrGone) {
		t.Errorf("the oldest: %v", err)
	}
	onDiskNow(s)
	var onDisk int64
	for _, name := range files(t, dir) {
		info, err := os.Stat(filepath.Join(dir, DirName, name))
		if err != nil {
			t.Fatal(err)
		}
		onDisk += info.Size()
	}
	if onDisk > 1<<20 {
		t.Errorf("%d bytes lie on the disk", onDisk)
	}
	// What has just come can be read, however large; and many small ones count.
	put(t, s, Name{100, "s_quiet", Body}, random(2<<20))
	if _, err := get(t, s, Name{100, "s_quiet", Body}); err != nil {
		t.Errorf("the large one: %v", err)
	}
	small := openStore(t, t.TempDir(), Options{MaxFiles: 20})
	for i := range 100 {
		put(t, small, Name{int64(i + 1), "s_1", Body}, []byte("x"))
	}
	if kept, _ := small.Kept(); kept > 20 || kept < 15 {
		t.Errorf("%d small ones", kept)
	}
}

func TestNames(t *testing.T) {
	for _, n := range []Name{{0, "s", Body}, {1, "", Body}, {1, "s/..", Body}, {1, "s.x", Body}, {1, "s", "other"}, {-1, "s", Body}, {1, "s\x00", Body}} {
		if n.valid() {
			t.Errorf("%q is a name", n.file())
		}
	}
	s := openStore(t, t.TempDir(), Options{})
	if _, err := s.Create(Name{1, "../../x", Body}); err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("%v", err)
	}
}

func BenchmarkKeepSmall(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	body := random(1200)
	for i := 1; b.Loop(); i++ {
		put(b, s, Name{int64(i), "s_1", Body}, body)
	}
}

func BenchmarkKeepLarge(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	body := random(16 << 20)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		put(b, s, Name{1, "s_1", Body}, body)
	}
}
