package bodies

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A part of a test that limits or ends its own process runs in a process of its
// own.
const partVariable = "YETT_BODIES_PART"

func TestMain(m *testing.M) {
	part, dir, found := strings.Cut(os.Getenv(partVariable), " ")
	if !found {
		os.Exit(m.Run())
	}
	err := map[string]func(dir string) error{"full": playFull, "writing": playWriting}[part](dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func part(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), partVariable+"="+name+" "+dir)
	return c
}

// A disk without room takes no body and leaves nothing half behind; what was
// answered before it was noticed stays readable, and is written once there is
// room again.
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if out, err := part(t, "full", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := openStore(t, dir, Options{})
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("left: %v", got)
	}
	for _, n := range []Name{{2, "s_1", Body}, {4, "s_1", Body}} {
		if got, err := get(t, s, n); err != nil || string(got) != "short" {
			t.Errorf("%v: %q, %v", n, got, err)
		}
	}
}

func limitFiles(bytes uint64) error {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: old.Max})
}

// playFull is a process whose files may have 100,000 bytes, then none, then any.
func playFull(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	s.Unlock(testKey)
	if err := limitFiles(100_000); err != nil {
		return err
	}
	large, err := s.Create(Name{1, "s_1", Body})
	if err != nil {
		return err
	}
	_, writing := large.Write(make([]byte, 4*chunkSize))
	if err := large.Commit(); !errors.Is(writing, ErrNoRoom) || !errors.Is(err, ErrNoRoom) {
		return fmt.Errorf("a long body: %v, %v", writing, err)
	}
	if entries, err := os.ReadDir(dir + "/" + DirName); err != nil || len(entries) != 0 {
		return fmt.Errorf("a part of it stays: %v, %v", entries, err)
	}
	if err := limitFiles(0); err != nil {
		return err
	}
	if err := short(s, 2); err != nil {
		return fmt.Errorf("what is noticed later: %v", err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; { // the writer learns it behind the answer
		err := short(s, 3)
		if errors.Is(err, ErrNoRoom) {
			break
		}
		s.mu.Lock()
		if at, kept := s.index.places[Name{3, "s_1", Body}]; kept {
			s.removeLocked(at.entry)
		}
		s.mu.Unlock()
		if err != nil || time.Now().After(deadline) {
			return fmt.Errorf("a short body: %v", err)
		}
	}
	if got, err := s.Open(Name{2, "s_1", Body}); err != nil || got.Size() != 5 {
		return fmt.Errorf("what was answered cannot be read: %v", err)
	}
	if err := limitFiles(1 << 30); err != nil {
		return err
	}
	s.Expire(time.Now())
	onDiskNow(s)
	if err := short(s, 4); err != nil {
		return fmt.Errorf("with room again: %v", err)
	}
	return s.Close()
}

func short(s *Store, row int64) error {
	w, err := s.Create(Name{row, "s_1", Body})
	if err != nil {
		return err
	}
	w.Write([]byte("short"))
	return w.Commit()
}

// Killed while it writes, a process leaves whole bodies and nothing else.
func TestAKilledWriter(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		c := part(t, "writing", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 + round {
			lines.Scan()
		}
		c.Process.Kill()
		c.Wait()
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.Unlock(testKey)
		whole := 0
		for _, name := range files(t, dir) {
			info, err := os.Stat(filepath.Join(dir, DirName, name))
			if err != nil {
				t.Fatal(err)
			}
			names, _, torn := s.found(name, info.Size())
			if len(names) == 0 || torn {
				t.Fatalf("%s is left", name)
			}
			for _, n := range names {
				got, err := get(t, s, n)
				if errors.Is(err, ErrDamaged) && len(got) == 0 { // cut in the one write of a short body
					continue
				}
				if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(n.Row)}, len(got))) {
					t.Fatalf("%s: %v", name, err)
				}
				whole++
			}
		}
		if whole == 0 {
			t.Error("no body was whole: was anything written?")
		}
		s.Close()
	}
}

func playWriting(dir string) error {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	s.Unlock(testKey)
	for row := int64(1); ; row++ {
		w, err := s.Create(Name{row, "s_1", Body})
		if err != nil {
			return err
		}
		w.Write(bytes.Repeat([]byte{byte(row)}, int(row%5)*3*chunkSize+10))
		if err := w.Commit(); err != nil {
			return err
		}
		fmt.Println(row)
	}
}
