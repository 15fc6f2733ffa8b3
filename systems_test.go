package yett_test

import (
	"encoding/json"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// silent are the functions of other systems than Linux that do nothing and
// refuse nothing, with the reason why that is right. One that is not here has to
// refuse, or to do its work.
var silent = map[string][]string{
	"nothing is the narrow answer": {
		"internal/httpexec/peek_other.go quiet", "internal/httpexec/unsent_other.go unsent", // no connection is used twice, and what may have left has left
		"internal/peer/tcp_other.go Socket.Holders", "internal/peer/peer_other.go Stdio.Trusted", "internal/peer/process_other.go Process.Alive",
		"internal/peer/process_other.go Process.SameExecutable", "internal/peer/process_other.go Process.PID", "internal/peer/process_other.go Process.Evidence",
	},
	"what would make one of these refuses": {
		"internal/peer/process_other.go Process.Done", "internal/peer/process_other.go Process.Hash", "internal/peer/process_other.go Process.Close",
		"internal/peer/peer_other.go Stdio.Intruded", "internal/peer/peer_other.go Stdio.Close",
		"internal/peer/process_other.go Reader.AcceptDescriptor", "internal/peer/process_other.go Reader.Descriptor",
		"internal/ledger/place_other.go place.database", "internal/ledger/place_other.go place.journal", "internal/ledger/place_other.go place.hasJournal",
		"internal/ledger/place_other.go place.release", "internal/localfile/open_other.go names", "cmd/yett/service_manager_other.go manager.state",
	},
	"what it returns refuses": {"internal/peer/process_other.go NewReader", "internal/peer/peer_other.go Stdio.Reader"},
	"its user says that it is not there": {
		"internal/suspend/suspend_other.go CanNoticeScreen", "internal/suspend/suspend_other.go asleep", "internal/notify/watch_other.go SessionBus",
		"internal/vault/harden_other.go keepFromDumps", "internal/selftest/system_other.go ofSystem",
	},
	"it is there": {"internal/suspend/watch_darwin.go CanNoticeScreen"},
	"there is nothing to do, and its comment says why": {
		"internal/endpoint/node_darwin.go nodeHandle.close", "internal/endpoint/node_darwin.go narrow", "internal/endpoint/lifetime_darwin.go programName",
		"internal/endpoint/lifetime_darwin.go stopped", "internal/sshexec/ack_other.go promptly",
	},
	"it is no part of what is installed": {"bench/cost_other.go processorTime", "bench/ledger_other.go forgetPeak", "bench/ledger_other.go peak", "controls/strays_other.go endStrays"},
}

// TestNothingPretends looks at every function that is compiled for other systems
// than Linux alone: it does something, or returns an error, or is known to be
// right without either.
func TestNothingPretends(t *testing.T) {
	known := slices.Concat(slices.Collect(maps.Values(silent))...)
	found := map[string]bool{}
	for path, file := range elsewhere(t) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !doesNothing(f) {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				name = receiver(f) + "." + name
			}
			name = filepath.ToSlash(path) + " " + name
			found[name] = true
			if !slices.Contains(known, name) {
				t.Errorf("%s does nothing and refuses nothing", name)
			}
		}
	}
	for _, name := range known {
		if !found[name] {
			t.Errorf("there is no silent %s", name)
		}
	}
}

// elsewhere returns the files of the module, tests left out, that are not
// compiled for Linux.
func elsewhere(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_darwin.go") || !forLinux(file) {
			files[path] = file
		}
		return nil
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files are for other systems: %v", len(files), err)
	}
	return files
}

// forLinux reports whether the build constraint of a file lets Linux in.
func forLinux(file *ast.File) bool {
	return built(file, func(tag string) bool { return tag != "darwin" && tag != "windows" })
}

// forOthers reports whether it lets in a system that is neither Linux nor macOS.
func forOthers(file *ast.File) bool {
	return built(file, func(tag string) bool { return tag == "freebsd" || tag == "unix" })
}

func built(file *ast.File, tags func(string) bool) bool {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() < file.Package && constraint.IsGoBuild(c.Text) {
				x, err := constraint.Parse(c.Text)
				return err == nil && x.Eval(tags)
			}
		}
	}
	return true
}

func receiver(f *ast.FuncDecl) string {
	x := f.Recv.List[0].Type
	if p, ok := x.(*ast.StarExpr); ok {
		x = p.X
	}
	return x.(*ast.Ident).Name
}

// doesNothing reports whether a function has no body to speak of: none, or one
// return of values that say nothing.
func doesNothing(f *ast.FuncDecl) bool {
	switch len(f.Body.List) {
	case 0:
		return true
	case 1:
		r, ok := f.Body.List[0].(*ast.ReturnStmt)
		if !ok {
			return false
		}
		return !slices.ContainsFunc(r.Results, func(e ast.Expr) bool { return !empty(e) })
	}
	return false
}

// empty reports whether an expression is nothing: nil, a zero, an empty value,
// or a function that does nothing.
func empty(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "false" || e.Name == "true"
	case *ast.BasicLit:
		return e.Value == "0" || e.Value == `""`
	case *ast.CompositeLit:
		return len(e.Elts) == 0
	case *ast.UnaryExpr:
		return empty(e.X)
	case *ast.FuncLit:
		return len(e.Body.List) == 0
	}
	return false
}

// TestOtherSystemsRefuse compiles what a system without evidence has in place of
// Linux's files, here, and asks all of it: each question is answered with the
// sentence, and nothing is let through.
func TestOtherSystemsRefuse(t *testing.T) {
	dir := t.TempDir()
	replace := map[string]string{}
	for _, pkg := range []string{"internal/peer", "internal/localfile", "internal/ledger", "internal/suspend", "internal/vault"} {
		files, err := filepath.Glob(pkg + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", pkg, err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case strings.HasSuffix(path, "_darwin.go"):
			case strings.HasSuffix(path, "_linux.go"), strings.HasSuffix(path, "_test.go"), !forOthers(file):
				replace[path] = "" // not there
			case !forLinux(file):
				to := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
				if err := os.WriteFile(to, []byte(strings.Replace(string(text), "//go:build !linux", "// for others: !linux", 1)), 0o600); err != nil {
					t.Fatal(err)
				}
				replace[path] = to
			}
		}
	}
	asks := filepath.Join(dir, "asks.go")
	if err := os.WriteFile(asks, []byte(questions), 0o600); err != nil {
		t.Fatal(err)
	}
	replace["internal/yetttest/others/main.go"] = asks
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	absolute := map[string]string{}
	for path, to := range replace {
		absolute[filepath.Join(root, path)] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": absolute})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "run", "-overlay", filepath.Join(dir, "overlay.json"), "./internal/yetttest/others")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	if err != nil || string(out) != "asked 25\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// questions asks everything that the rooms offer, on a system that has nothing.
const questions = `package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/localfile"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/suspend"
	"github.com/yett-broker/yett/internal/vault"
)

var asked, failed int

func refuses(what string, err error) {
	asked++
	if !errors.Is(err, peer.ErrUnsupported) || !strings.Contains(err.Error(), "no caller evidence on this system") {
		failed++
		fmt.Printf("%s: %v\n", what, err)
	}
}

func no(what string, yes bool) {
	asked++
	if yes {
		failed++
		fmt.Printf("%s\n", what)
	}
}

func main() {
	dir, err := os.MkdirTemp("", "others")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		panic(err)
	}
	defer l.Close()
	d, err := net.Dial("unix", filepath.Join(dir, "s"))
	if err != nil {
		panic(err)
	}
	defer d.Close()
	c := d.(*net.UnixConn)

	_, err = peer.Of(c)
	refuses("who is there", err)
	_, err = peer.Parent()
	refuses("the parent", err)
	_, err = peer.OfPair(os.Stdin)
	refuses("the pair", err)
	_, err = peer.Kinship(nil, nil)
	refuses("kinship", err)
	_, err = peer.BootID()
	refuses("the boot", err)
	_, err = peer.TCPSocket(netip.AddrPort{}, netip.AddrPort{})
	refuses("a TCP socket", err)
	_, err = peer.Number(c)
	refuses("the number", err)
	_, err = peer.GuardStdin(os.Stdin, os.Stdout, 1)
	refuses("a guard", err)
	refuses("the floor", peer.Floor())
	refuses("a listener", peer.ListenControl("unix", "", nil))
	_, err = peer.NewReader(c, os.Getpid()).Read(make([]byte, 1))
	refuses("a read", err)

	var p peer.Process
	refuses("a look", p.Recheck())
	_, err = p.Parent()
	refuses("its parent", err)
	_, _, err = p.Ancestors()
	refuses("its ancestors", err)
	no("nobody lives", p.Alive())
	no("nobody is this program", p.SameExecutable(0, 0))
	no("holders of no socket", peer.Socket{}.Holders() != nil)

	var s peer.Stdio
	_, _, err = s.ReadLine(1)
	refuses("a line of standard input", err)
	_, err = s.Reader().Read(make([]byte, 1))
	refuses("standard input", err)
	no("standard input is trusted", s.Trusted())
	no("standard input is guarded", s.Guarded)

	var log bytes.Buffer
	suspend.Watch(context.Background(), suspend.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Sleep: func() {}})
	no("sleep is noticed", !strings.Contains(log.String(), "sleep is not noticed on this system"))
	no("the vault says that it is closed to debuggers", !strings.Contains(strings.Join(vault.Harden(), " "), "not kept out"))
	_, err = ledger.Open(dir, ledger.Options{AuditPublicKey: append([]byte{9}, make([]byte, 31)...)})
	no(fmt.Sprint("a ledger: ", err), err == nil || !strings.Contains(err.Error(), "cannot be kept private"))
	_, err = localfile.Open(dir, filepath.Join(dir, "s"), localfile.Apart{})
	no(fmt.Sprint("a file: ", err), err == nil || !strings.Contains(err.Error(), "not copied on this system"))
	if failed > 0 {
		os.Exit(1)
	}
	fmt.Printf("asked %d\n", asked)
}
`
