package yetttest

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// update writes the golden cards anew: go test ./internal/yetttest -run Golden -update
var update = flag.Bool("update", false, "write the golden files of cards anew")

// envGolden names the descriptor to which golden files go when root runs the
// tests: the account that plays them may not write into the source tree.
const envGolden = "YETTTEST_GOLDEN"

// goldenDir is where golden cards lie, beside this file.
var goldenDir = filepath.Join("testdata", "cards")

var (
	goldenEnd  *os.File
	goldenDone = make(chan error, 1)
	contained  *exec.Cmd
)

// prepareCards runs as whoever starts the tests, before the change of account.
func prepareCards(dir string) error {
	flag.Parse()
	if err := startContained(dir); err != nil {
		return err
	}
	if !*update || os.Getuid() != 0 {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETFD, 0); err != nil { // the account inherits it
		return err
	}
	os.Setenv(envGolden, strconv.Itoa(int(w.Fd())))
	goldenEnd = w
	go func() { goldenDone <- takeGolden(r) }()
	return nil
}

// finishCards waits for what prepareCards has started.
func finishCards() error {
	if contained != nil {
		contained.Process.Kill()
		contained.Wait()
	}
	if goldenEnd == nil {
		return nil
	}
	goldenEnd.Close()
	return <-goldenDone
}

// goldenFile is one golden file on the pipe.
type goldenFile struct {
	Name string
	Text []byte
}

func takeGolden(r *os.File) error {
	dec := json.NewDecoder(bufio.NewReader(r))
	for dec.More() {
		var f goldenFile
		if err := dec.Decode(&f); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(goldenDir, filepath.Base(f.Name)), f.Text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeGolden writes a golden file, by whoever may.
func writeGolden(t testing.TB, name string, text []byte) {
	t.Helper()
	fd, err := strconv.Atoi(os.Getenv(envGolden))
	if err != nil {
		must(t, os.WriteFile(filepath.Join(goldenDir, name), text, 0o644))
		return
	}
	line, err := json.Marshal(goldenFile{name, text})
	must(t, err)
	_, err = syscall.Write(fd, append(line, '\n')) // in one piece: nobody else writes now
	must(t, err)
}

// cardAccess has fixed places, so that cards are the same everywhere; nothing
// is executed.
const cardAccess = `
[credential.demo]
kind = "bearer"
origin = "https://api.demo.example"

[credential.old]
kind = "bearer"
origin = "http://127.0.0.1:8080"

[credential.deploy]
kind = "ssh-key"

[host.web1]
address = "web1.demo.example:22"
user = "deploy"
key = "deploy"
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8mZCyfBvDgVVOMfyqcBBIDwVdWiqN0ZmgLbNYAjBmF"]

[capability."http:demo.read"]
credential = "demo"
methods = ["GET", "HEAD"]
paths = ["/v1/invoices", "/v1/invoices/**"]
query = ["page", "per_page"]
budget = "300/h"

[capability."http:demo.pay"]
credential = "demo"
methods = ["POST"]
paths = ["/v1/payments"]
confirm = "each"

[capability."http:old.status"]
credential = "old"
methods = ["GET"]
paths = ["/status"]

[capability."ssh:web1.restart"]
host = "web1"
commands = ["systemctl restart *"]
confirm = "each"
`
