package doctor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/yetttest"
)

const accessFile = "[credential.billing]\nkind = \"bearer\"\norigin = \"https://billing.invalid\"\n" +
	"[capability.\"http:billing.read\"]\ncredential = \"billing\"\nmethods = [\"GET\"]\npaths = [\"/v1/**\"]\n"

// found is the output of yett doctor --json.
type found struct {
	OK     bool `json:"ok"`
	Checks []struct {
		Name     string `json:"name"`
		OK       bool   `json:"ok"`
		Found    string `json:"found"`
		NextStep string `json:"next_step"`
	} `json:"checks"`
}

// examine runs yett doctor.
func examine(t *testing.T, b *yetttest.Broker) found {
	t.Helper()
	r := b.RunPlain("doctor", "--json")
	var f found
	r.JSON(t, &f)
	if f.OK != (r.Code == 0) || len(f.Checks) == 0 {
		t.Fatalf("exit %d with ok %v and %d checks", r.Code, f.OK, len(f.Checks))
	}
	for _, c := range f.Checks {
		if c.Name == "" || c.Found == "" || !c.OK && c.NextStep == "" {
			t.Errorf("an empty member: %+v", c)
		}
	}
	return f
}

// says wants a check with this name, verdict and text; a check that is not ok
// fails the whole.
func (f found) says(t *testing.T, name string, ok bool, text string) {
	t.Helper()
	for _, c := range f.Checks {
		if c.Name == name && c.OK == ok && strings.Contains(c.Found+"\n"+c.NextStep, text) {
			if !ok && f.OK {
				t.Errorf("%s is not ok, the whole is", name)
			}
			return
		}
	}
	t.Errorf("no check %s, ok %v, with %q in\n%+v", name, ok, text, f.Checks)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestE4_DoctorAllInOrder(t *testing.T) {
	b := yetttest.Start(t, accessFile, "billing", "a-value-of-some-length")
	f := examine(t, b)
	for _, c := range f.Checks {
		if !c.OK {
			t.Errorf("%+v", c)
		}
	}
	socket := b.Location().Socket
	f.says(t, "endpoint", true, socket+": socket of uid ")
	f.says(t, "endpoint", true, "mode 0600")
	f.says(t, "broker", true, "ready")
	f.says(t, "program_on_disk", true, "runs the yett that lies there")
	f.says(t, "vault", true, "opened by passphrase or recovery")
	f.says(t, "previous_generation", true, "vault.yett.prev: regular file")
	f.says(t, "service", true, "by hand")
	f.says(t, "network", true, "TCP socket")
	r := b.RunPlain("doctor")
	if r.Code != 0 || !strings.Contains(r.Stdout, "ok      endpoint") || !strings.Contains(r.Stdout, "0 to mend") {
		t.Errorf("exit %d:\n%s", r.Code, r.Stdout)
	}
	b.RunPlain("lock")
	f = examine(t, b)
	f.says(t, "broker", true, "Unlock it when agents need it")
}

// stamps are what tells that a file was touched.
func stamps(t *testing.T, root string) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		st := i.Sys().(*syscall.Stat_t)
		out.WriteString(strings.Join([]string{path, i.Mode().String(), i.ModTime().String()}, " "))
		out.WriteString(" " + time.Unix(st.Ctim.Unix()).String() + " " + uintText(st.Ino) + "\n")
		return nil
	}))
	return out.String()
}

func uintText(n uint64) string {
	b := []byte{}
	for ; n > 0; n /= 10 {
		b = append(b, byte('0'+n%10))
	}
	slices.Reverse(b)
	return string(b)
}

// settled waits until the broker has brought its rows into the database.
func settled(t *testing.T, root string) string {
	t.Helper()
	before := stamps(t, root)
	for range 200 {
		time.Sleep(50 * time.Millisecond)
		now := stamps(t, root)
		if now == before {
			return now
		}
		before = now
	}
	t.Fatal("the home does not come to rest")
	return ""
}

// headed reports whether the newest head of a ledger is over all its rows, by
// what yett audit verify says.
func headed(t *testing.T, verified string) bool {
	t.Helper()
	var v struct {
		Entries    int
		Checkpoint string
	}
	must(t, json.Unmarshal([]byte(verified), &v))
	lines := strings.Split(v.Checkpoint, "\n")
	return len(lines) > 1 && lines[1] == strconv.Itoa(v.Entries)
}

// TestE4_DoctorChangesNothing: no file gets another time, mode or inode, none
// comes or goes, and no row is written, beside a broker and without one.
func TestE4_DoctorChangesNothing(t *testing.T) {
	b := yetttest.Start(t, accessFile, "billing", "a-value-of-some-length")
	entries := func() string { return b.RunPlain("audit", "verify", "--json").Stdout }
	rows := entries()
	for !headed(t, rows) { // the head follows the rows
		time.Sleep(50 * time.Millisecond)
		rows = entries()
	}
	before := settled(t, b.Home)
	examine(t, b)
	if after := stamps(t, b.Home); after != before {
		t.Errorf("beside a broker:\n%s\n%s", before, after)
	}
	if now := entries(); now != rows {
		t.Errorf("the ledger was %s, is %s", rows, now)
	}
	b.Kill()
	before = stamps(t, b.Home)
	examine(t, b)
	if after := stamps(t, b.Home); after != before {
		t.Errorf("beside what a crash left:\n%s\n%s", before, after)
	}
}

func TestE4_DoctorEndpoint(t *testing.T) {
	b := yetttest.New(t)
	socket := b.Location().Socket
	examine(t, b).says(t, "endpoint", false, "Start the broker: yett up --home "+b.Home)
	b.Serve()
	b.Kill()
	examine(t, b).says(t, "endpoint", false, "left its socket")

	must(t, os.Remove(socket))
	must(t, os.WriteFile(socket, nil, 0o600))
	examine(t, b).says(t, "endpoint", false, "regular file of uid")
	must(t, os.Remove(socket))
	must(t, os.Symlink("/tmp", socket))
	examine(t, b).says(t, "endpoint", false, "symbolic link of uid")
	must(t, os.Remove(socket))

	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	must(t, os.Chmod(socket, 0o666))
	examine(t, b).says(t, "endpoint", false, "mode 0666")
	must(t, os.Chmod(socket, 0o600))
	examine(t, b).says(t, "endpoint", false, "Find out who listens there")
	must(t, os.Chmod(filepath.Dir(socket), 0o755))
	examine(t, b).says(t, "endpoint", false, "mode 0755")
	must(t, os.Chmod(filepath.Dir(socket), 0o700))
}

// TestE4_DoctorStoppedBroker: a broker that does not run on is told in time.
func TestE4_DoctorStoppedBroker(t *testing.T) {
	b := yetttest.New(t)
	b.Serve()
	must(t, syscall.Kill(b.PID(), syscall.SIGSTOP))
	examine(t, b).says(t, "endpoint", false, "stopped")
	must(t, syscall.Kill(b.PID(), syscall.SIGCONT))
}

func TestDoctorModesAndBackups(t *testing.T) {
	b := yetttest.Start(t, accessFile)
	b.Kill()
	path := func(name string) string { return filepath.Join(b.Home, name) }
	for _, name := range []string{"vault.yett.prev", "ledger.db"} {
		must(t, os.Chmod(path(name), 0o644))
		examine(t, b).says(t, "files", false, name+": regular file of uid")
		must(t, os.Chmod(path(name), 0o600))
	}
	must(t, os.Symlink("/etc/passwd", path("link")))
	examine(t, b).says(t, "files", false, "symbolic link")
	must(t, os.Remove(path("link")))
	must(t, os.WriteFile(path("vault.yett.replaced-7"), []byte("old"), 0o600))
	examine(t, b).says(t, "replaced_vault", true, "Remove it when")
	must(t, os.Chmod(b.Home, 0o755))
	examine(t, b).says(t, "data_directory", false, "mode 0755")
	must(t, os.Chmod(b.Home, 0o700))
	now := time.Now().Add(time.Hour)
	must(t, os.Chtimes(path("ledger.db"), now, now))
	examine(t, b).says(t, "clock", false, "ledger.db was written at")
}

func TestDoctorVault(t *testing.T) {
	b := yetttest.Start(t, accessFile)
	file := filepath.Join(b.Home, vault.FileName)
	older, err := os.ReadFile(file)
	must(t, err)
	for _, note := range []string{"\n# one\n", "\n# two\n", "\n# three\n"} {
		b.Apply(strings.Replace(accessFile, "GET", "GET\", \"HEAD", 1) + note)
	}
	b.Kill()
	must(t, os.WriteFile(file, older, 0o600))
	examine(t, b).says(t, "vault", false, "a later one")
	must(t, os.WriteFile(file, bytes.Replace(older, []byte("yett"), []byte("YETT"), 1), 0o600))
	examine(t, b).says(t, "vault", false, "Restore a backup")
	must(t, errors.Join(os.Remove(file), os.Remove(file+".prev")))
	examine(t, b).says(t, "vault", false, "Make it, and start the broker: yett up")
}

func TestDoctorLedger(t *testing.T) {
	b := yetttest.Start(t, accessFile)
	b.Stop() // what it knew is in the files then
	overwrite := func(name string, at int64, with string) (undo func()) {
		f, err := os.OpenFile(filepath.Join(b.Home, name), os.O_RDWR, 0)
		must(t, err)
		old := make([]byte, len(with))
		_, err = f.ReadAt(old, at)
		must(t, err)
		_, err = f.WriteAt([]byte(with), at)
		must(t, err)
		return func() {
			_, err := f.WriteAt(old, at)
			must(t, errors.Join(err, f.Close()))
		}
	}
	for _, c := range []struct {
		file string
		at   int64
		with string
		says string
	}{
		{"ledger.db", 0, "SQLITE", "not a database"},
		{"ledger.db", 68, "OTHR", "not a ledger"},
		{"ledger.db", 60, "\x00\x00\x00\x63", "version 99"},
		{"ledger.journal", 0, "other", "it is no journal"},
	} {
		undo := overwrite(c.file, c.at, c.with)
		examine(t, b).says(t, "ledger", false, c.says)
		undo()
	}
	examine(t, b).says(t, "ledger", true, "version 3")
}
