// Command packaging makes the files that people install: for each platform an
// archive (tar.gz), for Linux a Debian package too, SHA256SUMS over them, and a
// Homebrew formula (yett.rb) that names them. The archive for darwin/universal
// has programs of both of Apple's architectures, signed ad hoc (macho.go).
//
//	bin/yett, bin/yett-mcp           static; each finds the other beside itself
//	share/man/man1                   the manual
//	share/*completion*, share/zsh …  completions of bash, zsh and fish
//	lib/systemd/user                 the user units; not in archives (units.go)
//	share/doc/yett                   documents, licences of ours and of what is linked in
//
// An archive has these below one directory, a Debian package below /usr. The
// same sources, Go release and SOURCE_DATE_EPOCH give the same bytes: names are
// sorted, times are that one time, owners are root, modes are 0755 and 0644
// whatever the umask is. A package runs nothing when it is installed or removed
// and has no set-id bits.
//
// It trusts the Go toolchain, the module cache and dpkg-deb of whoever runs it.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	flags := flag.NewFlagSet("packaging", flag.ContinueOnError)
	out := flags.String("out", "dist", "the directory for the packages")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64,darwin/universal", "GOOS/GOARCH, separated by commas")
	sign := flags.String("macos-sign", "", "a command that signs the program at the path that follows it, for macOS")
	version := flags.String("version", "", "the version, as git describe prints it")
	install := flags.String("install", "", "install below this directory instead, for this platform")
	prefix := flags.String("prefix", "/usr/local", "where the directory of -install will be on the machine that it is for")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	err := func() error {
		r, err := newRelease(*version, os.Getenv("SOURCE_DATE_EPOCH"))
		if err != nil {
			return err
		}
		r.sign = *sign
		if *install != "" {
			return r.install(*install, *prefix)
		}
		return r.packages(*out, strings.Split(*platforms, ","))
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		return 1
	}
	return 0
}

// release is what is the same for all platforms.
type release struct {
	version string // without a leading v
	time    time.Time
	sign    string // signs programs for macOS; empty for ad hoc signatures alone
}

func newRelease(version, epoch string) (*release, error) {
	if version == "" {
		return nil, fmt.Errorf("-version is missing")
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH must be the time of the sources in seconds, not %q", epoch)
	}
	if strings.HasPrefix(version, "v") && len(version) > 1 && version[1] >= '0' && version[1] <= '9' {
		version = version[1:]
	}
	return &release{version: version, time: time.Unix(seconds, 0).UTC()}, nil
}

// platform is a GOOS and a GOARCH.
type platform struct{ os, arch string }

func host() platform { return platform{runtime.GOOS, runtime.GOARCH} }

// packages makes the files of all platforms in dir, and nothing else of ours
// is left there.
func (r *release) packages(dir string, platforms []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := removeOld(dir); err != nil {
		return err
	}
	var names []string
	for _, text := range platforms {
		goos, arch, ok := strings.Cut(text, "/")
		if !ok {
			return fmt.Errorf("%q is no GOOS/GOARCH", text)
		}
		p := platform{goos, arch}
		t, err := r.build(p)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		made, err := r.pack(dir, p, t)
		if err != nil {
			return err
		}
		names = append(names, made...)
	}
	if err := r.formulaFor(dir, names); err != nil {
		return fmt.Errorf("writing the formula: %w", err)
	}
	return writeSums(dir, names)
}

// pack writes the packages of one platform.
func (r *release) pack(dir string, p platform, t tree) (names []string, err error) {
	name := fmt.Sprintf("yett_%s_%s_%s.tar.gz", r.version, p.os, p.arch)
	if err := r.archive(filepath.Join(dir, name), t); err != nil {
		return nil, fmt.Errorf("writing %s: %w", name, err)
	}
	names = append(names, name)
	if p.os != "linux" {
		return names, nil
	}
	name = fmt.Sprintf("yett_%s_%s.deb", debianVersion(r.version), debianArch(p.arch))
	if err := r.debian(filepath.Join(dir, name), t, p); err != nil {
		return nil, fmt.Errorf("making %s: %w", name, err)
	}
	return append(names, name), nil
}

// removeOld removes the packages of another time: SHA256SUMS is about all.
func removeOld(dir string) error {
	for _, pattern := range []string{"yett_*.tar.gz", "yett_*.deb", "yett.rb", "SHA256SUMS"} {
		old, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, f := range old {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeSums(dir string, names []string) error {
	slices.Sort(names)
	var sums strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
		fmt.Println(filepath.Join(dir, name))
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// install puts the tree of this platform below dir, which will be prefix.
func (r *release) install(dir, prefix string) error {
	t, err := r.build(host())
	if err != nil {
		return err
	}
	if host().os == "linux" {
		if err := t.addUnits(prefix); err != nil {
			return err
		}
	}
	return r.lay(t, dir)
}

// lay writes what is for use below dir; the rest is for whoever unpacks an
// archive.
func (r *release) lay(t tree, dir string) error {
	for _, name := range t.names() {
		if strings.Contains(name, "/") {
			if err := t[name].write(filepath.Join(dir, name), r.time); err != nil {
				return err
			}
		}
	}
	return nil
}
