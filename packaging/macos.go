package main

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// addUniversal compiles a program for both of Apple's architectures, signs each
// ad hoc, joins them, and has the result signed by r.sign if that is given.
func (r *release) addUniversal(t tree, dir, name string) error {
	var both [][]byte
	for _, arch := range []string{"amd64", "arm64"} {
		path, err := r.compile(dir, platform{"darwin", arch}, name)
		if err != nil {
			return err
		}
		if err := t.addLicenses(path); err != nil {
			return err
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if program, err = signAdHoc(program, name, flagAdHoc); err != nil {
			return fmt.Errorf("signing %s for %s: %w", name, arch, err)
		}
		both = append(both, program)
	}
	whole, err := universal(both...)
	if err != nil {
		return fmt.Errorf("joining %s: %w", name, err)
	}
	if whole, err = r.signAgain(filepath.Join(dir, name), whole); err != nil {
		return err
	}
	t["bin/"+name] = file{whole, true}
	return nil
}

// signAgain runs the command r.sign on a program. What it leaves there is read
// as Yett reads a caller's program, whoever signed it.
func (r *release) signAgain(path string, program []byte) ([]byte, error) {
	if r.sign != "" {
		if err := os.WriteFile(path, program, 0o755); err != nil {
			return nil, err
		}
		c := exec.Command("sh", "-c", r.sign+` "$1"`, "sh", path)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		err := c.Run()
		if err == nil {
			program, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, fmt.Errorf("signing %s by %q: %w", path, r.sign, err)
		}
	}
	if err := checkSigned(program); err != nil {
		return nil, fmt.Errorf("looking at the signature of %s: %w", path, err)
	}
	return program, nil
}

//go:embed homebrew/yett.rb.tmpl
var formulaText string

var formula = template.Must(template.New("yett.rb").Parse(formulaText))

// formulaFor writes the Homebrew formula of the archives that were made.
func (r *release) formulaFor(dir string, names []string) error {
	type archive struct{ URL, SHA256 string }
	data := struct {
		Module, Version             string
		MacOS, LinuxIntel, LinuxArm archive
	}{Module: module, Version: r.version}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, "yett_"+r.version+"_")
		into := map[string]*archive{"darwin_universal.tar.gz": &data.MacOS, "linux_amd64.tar.gz": &data.LinuxIntel, "linux_arm64.tar.gz": &data.LinuxArm}[rest]
		if !ok || into == nil {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		*into = archive{fmt.Sprintf("https://%s/releases/download/v%s/%s", module, r.version, name), fmt.Sprintf("%x", sha256.Sum256(content))}
	}
	out, err := os.OpenFile(filepath.Join(dir, "yett.rb"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := formula.Execute(out, data); err != nil {
		return err
	}
	return out.Close()
}
