package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/yett-broker/yett"

// programs are those of a package. They find one another side by side.
var programs = []string{"yett", "yett-mcp"}

//go:embed man/yett-mcp.1
var shimPage string

// build makes the tree of one platform.
func (r *release) build(p platform) (tree, error) {
	dir, err := os.MkdirTemp("", "yett-package-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t := tree{}
	for _, name := range programs {
		if err := r.addProgram(t, dir, p, name); err != nil {
			return nil, err
		}
	}
	yett := filepath.Join(dir, p.os, p.arch, "yett")
	if p != host() {
		if yett, err = r.compile(dir, host(), "yett"); err != nil {
			return nil, err
		}
	}
	if err := r.addManual(t, yett, filepath.Join(dir, "man")); err != nil {
		return nil, err
	}
	if err := r.addCompletions(t, yett); err != nil {
		return nil, err
	}
	return t, t.addDocuments()
}

// addProgram compiles a program and adds it with the licences of what is in it.
func (r *release) addProgram(t tree, dir string, p platform, name string) error {
	if p == (platform{"darwin", "universal"}) {
		return r.addUniversal(t, dir, name)
	}
	path, err := r.compile(dir, p, name)
	if err != nil {
		return err
	}
	if err := t.add("bin/"+name, path, true); err != nil {
		return err
	}
	return t.addLicenses(path)
}

// compile builds a program as make build does, for a platform and without what
// only a debugger reads.
func (r *release) compile(dir string, p platform, name string) (string, error) {
	path := filepath.Join(dir, p.os, p.arch, name)
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version, "-o", path, "./cmd/"+name)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=", "GOAMD64=v1")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return path, nil
}

func (t tree) add(name, from string, program bool) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	t[name] = file{content, program}
	return nil
}

func (r *release) addManual(t tree, yett, dir string) error {
	c := exec.Command(yett, "man", dir)
	c.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("writing the manual: %w\n%s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return err
	}
	for _, p := range pages {
		if err := t.add("share/man/man1/"+filepath.Base(p), p, false); err != nil {
			return err
		}
	}
	page := strings.NewReplacer("@DATE@", r.time.Format(`2006\-01\-02`), "@VERSION@", strings.ReplaceAll(r.version, "-", `\-`)).Replace(shimPage)
	t["share/man/man1/yett-mcp.1"] = file{content: []byte(page)}
	return nil
}

func (r *release) addCompletions(t tree, yett string) error {
	for shell, name := range map[string]string{
		"bash": "share/bash-completion/completions/yett",
		"zsh":  "share/zsh/site-functions/_yett",
		"fish": "share/fish/vendor_completions.d/yett.fish",
	} {
		var stderr bytes.Buffer
		c := exec.Command(yett, "completion", shell)
		c.Stderr = &stderr
		script, err := c.Output()
		if err != nil {
			return fmt.Errorf("writing the completion of %s: %w\n%s", shell, err, &stderr)
		}
		t[name] = file{content: script}
	}
	return nil
}

// addDocuments adds what is for reading. An archive has the first two on top as
// well, where whoever unpacks it looks.
func (t tree) addDocuments() error {
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		return err
	}
	for _, name := range append(documents, "LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md") {
		if err := t.add("share/doc/yett/"+name, name, false); err != nil {
			return err
		}
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		t[name] = t["share/doc/yett/"+name]
	}
	return nil
}
