package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestA05_SecondBrokerIsRefused(t *testing.T) {
	in := newInstallation(t)
	in.open(t)
	if _, err := Open(in.dir, Options{AuditPublicKey: in.public}); !errors.Is(err, ErrInUse) {
		t.Fatalf("the same process: %v", err)
	}
	out, err := in.command("open").Output()
	if err == nil || !strings.Contains(string(out), ErrInUse.Error()) {
		t.Fatalf("another process: %v: %s", err, out)
	}
}

func TestModesWhateverTheUmask(t *testing.T) {
	for _, umask := range []string{"0", "077", "0777"} {
		in := newInstallation(t)
		cmd := in.command("umask")
		cmd.Env = append(cmd.Env, "UMASK="+umask)
		mustRun(t, cmd)
	}
}

func playUmask(open func() *Ledger) error {
	var umask int
	fmt.Sscanf(os.Getenv("UMASK"), "%o", &umask)
	syscall.Umask(umask)
	l := open()
	if _, err := l.Append(background, row("one")); err != nil {
		return err
	}
	for name, want := range map[string]os.FileMode{
		"": 0o700 | os.ModeDir, "ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600, "ledger.lock": 0o600, journalName: 0o600,
	} {
		fi, err := os.Lstat(filepath.Join(os.Args[1], name))
		if err != nil {
			return err
		}
		if fi.Mode() != want {
			return fmt.Errorf("umask %o: %s is %v", umask, fi.Name(), fi.Mode())
		}
	}
	return l.Close()
}

// TestOpenRefusesWhatIsNotItsOwn puts each foreign thing where the ledger
// belongs, and looks that it is left alone.
func TestOpenRefusesWhatIsNotItsOwn(t *testing.T) {
	symlink := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			target := filepath.Join(t.TempDir(), "target")
			if err := os.WriteFile(target, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, name), 0o640); err != nil {
				t.Fatal(err)
			}
		}
	}
	pipe := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]func(t *testing.T, dir string){
		"database is a link":    symlink("ledger.db"),
		"lock is a link":        symlink("ledger.lock"),
		"log is a link":         symlink("ledger.db-wal"),
		"intents are a link":    symlink(journalName),
		"intents open to all":   open(journalName),
		"intents are a pipe":    pipe(journalName),
		"database open to all":  open("ledger.db"),
		"log open to all":       open("ledger.db-wal"),
		"journal open to all":   open("ledger.db-journal"),
		"shared memory is open": open("ledger.db-shm"),
		"database is a pipe":    pipe("ledger.db"),
		"lock is a pipe":        pipe("ledger.lock"),
		"directory open to others": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "letter"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"not a database": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "ledger.db"), []byte(strings.Repeat("a letter ", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	if os.Geteuid() == 0 { // an ordinary account cannot give files away
		cases["database of another account"] = func(t *testing.T, dir string) {
			open("ledger.db")(t, dir)
			path := filepath.Join(dir, "ledger.db")
			if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 65534, 65534)); err != nil {
				t.Fatal(err)
			}
		}
		cases["directory of another account"] = func(t *testing.T, dir string) {
			if err := os.Chown(dir, 65534, 65534); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			in := newInstallation(t)
			if err := os.Mkdir(in.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			prepare(t, in.dir)
			l, err := Open(in.dir, Options{AuditPublicKey: in.public})
			if err == nil {
				l.Close()
				t.Fatal("it was opened")
			}
			if name == "database is a link" {
				target, _ := os.Readlink(filepath.Join(in.dir, "ledger.db"))
				if fi, err := os.Stat(target); err != nil || fi.Size() != 0 {
					t.Fatalf("the target was written: %v %v", fi, err)
				}
			}
		})
	}
}

func TestEmptyOwnDirectoryIsClosedToOthers(t *testing.T) {
	in := newInstallation(t)
	if err := errors.Join(os.Mkdir(in.dir, 0o700), os.Chmod(in.dir, 0o775)); err != nil {
		t.Fatal(err)
	}
	in.open(t)
	if fi, err := os.Stat(in.dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v", fi.Mode(), err)
	}
}

// TestOddDirectoryNames: a name must not become a part of SQLite's URI.
func TestOddDirectoryNames(t *testing.T) {
	for _, name := range []string{"a?mode=memory", "b#c", "d%3f", "e f", "g;h&i=ä"} {
		in := newInstallation(t)
		in.dir = filepath.Join(t.TempDir(), name)
		l := in.open(t)
		if _, err := l.Append(t.Context(), row("one")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(in.dir, "ledger.db")); err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, in, in.opener(t)); r.Entries != 1 {
			t.Fatalf("%s: %+v", name, r)
		}
	}
}
