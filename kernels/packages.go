package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const fetchTime = 5 * time.Minute

// fetched is a kernel in the cache.
type fetched struct {
	image   string // path
	busybox string // path of the suite's static one
	version string // of the kernel's package
}

// fetch returns the newest kernel of a suite, from the cache if one is there.
func fetch(ctx context.Context, cache string, k kernel, update bool) (fetched, error) {
	dir := filepath.Join(cache, k.suite)
	f := fetched{image: filepath.Join(dir, "vmlinuz"), busybox: filepath.Join(dir, "busybox")}
	named := filepath.Join(dir, "version")
	if !update {
		version, err := os.ReadFile(named) // written last
		if err == nil {
			f.version = strings.TrimSpace(string(version))
			return f, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	a, err := newApt(ctx, dir, k.suite)
	if err != nil {
		return f, err
	}
	if _, err := a.run(ctx, "apt-get", "-q", "update"); err != nil {
		return f, err
	}
	os.Remove(named)
	name, version, err := a.kernelPackage(ctx)
	if err != nil {
		return f, err
	}
	if err := a.take(ctx, name, regexp.MustCompile(`/vmlinuz[^/]*$`), f.image); err != nil {
		return f, err
	}
	if err := a.take(ctx, "busybox-static", regexp.MustCompile(`/bin/busybox$`), f.busybox); err != nil {
		return f, err
	}
	f.version = name + " " + version
	return f, os.WriteFile(named, []byte(f.version+"\n"), 0o644)
}

// apt runs apt's programs on a state of their own, so that the system's stays
// as it is and root is not needed.
type apt struct {
	dir     string
	options []string
}

func newApt(ctx context.Context, dir, suite string) (*apt, error) {
	mirror, err := debianMirror(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keys); err != nil {
		return nil, fmt.Errorf("reading the signing keys of Debian (package debian-archive-keyring): %w", err)
	}
	sources := filepath.Join(dir, "suite.sources")
	suites := suite
	if base, ok := strings.CutSuffix(suite, "-backports"); ok {
		suites += " " + base // backports hold only what is newer
	}
	text := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nArchitectures: amd64\nSigned-By: %s\n", mirror, suites, keys)
	if err := os.WriteFile(sources, []byte(text), 0o644); err != nil {
		return nil, err
	}
	status := filepath.Join(dir, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	a := &apt{dir: dir}
	for _, o := range []string{"Dir::Etc::sourcelist=" + sources, "Dir::Etc::sourceparts=/dev/null", "Dir::State::status=" + status,
		"Dir::State::lists=" + filepath.Join(dir, "lists"), "Dir::Cache=" + dir, "Dir::Cache::archives=" + filepath.Join(dir, "archives"),
		"APT::Default-Release=" + suite, "APT::Architecture=amd64", "APT::Sandbox::User=", "Acquire::Languages=none", "Acquire::Retries=1",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false", "Acquire::http::Timeout=30", "Acquire::https::Timeout=30"} {
		a.options = append(a.options, "-o", o)
	}
	return a, nil
}

// debianMirror asks this system's apt where it gets Debian from.
func debianMirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("asking apt for its mirror: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Debian" && f[1] == "Debian" {
			return f[2], nil
		}
	}
	return "", errors.New("this system's apt has no Debian mirror, or was never updated: apt-get update")
}

func (a *apt) run(ctx context.Context, program string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, program, append(a.options, args...)...)
	c.Dir = a.dir // downloads go where the command stands
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, complaint.Bytes())
	}
	return out.String(), nil
}

var (
	dependsOn = regexp.MustCompile(`(?m)^Depends:.*?\b(linux-(?:image|binary)-[0-9][^ ,(]*)`)
	versionOf = regexp.MustCompile(`(?m)^Version: (.*)$`)
)

// kernelPackage follows the package that always names the newest kernel to the
// one that holds it.
func (a *apt) kernelPackage(ctx context.Context) (name, version string, err error) {
	name = "linux-image-cloud-amd64"
	for range 3 { // newer packages have one step more
		about, err := a.run(ctx, "apt-cache", "show", "--no-all-versions", name)
		if err != nil {
			return "", "", err
		}
		if v := versionOf.FindStringSubmatch(about); v != nil {
			version = v[1]
		}
		next := dependsOn.FindStringSubmatch(about)
		if next == nil {
			break
		}
		name = next[1]
	}
	return name, version, nil
}

// take downloads a package and takes one file out of it.
func (a *apt) take(ctx context.Context, name string, which *regexp.Regexp, to string) error {
	if _, err := a.run(ctx, "apt-get", "-q", "download", name); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(a.dir, name+"_*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("apt left %d files of %s", len(files), name)
	}
	defer os.Remove(files[0])
	c := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", files[0])
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Wait()
	defer out.Close() // dpkg-deb ends, although it was not read to the end
	archive := tar.NewReader(out)
	for {
		h, err := archive.Next()
		if err != nil {
			return fmt.Errorf("looking into %s: %w", name, err)
		}
		if which.MatchString(h.Name) && h.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(archive)
			if err != nil {
				return fmt.Errorf("unpacking %s: %w", name, err)
			}
			return os.WriteFile(to, content, 0o755)
		}
	}
}
