package main

import (
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// licenses is where the licences of what is linked in stand.
const licenses = "share/doc/yett/licenses/"

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)`)

// addLicenses adds the licence files of every module that is in a program, as
// the program itself lists them, and of Go's library. A module without one is
// an error: it must not be passed on.
func (t tree) addLicenses(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading what is linked into %s: %w", program, err)
	}
	root, err := goOutput("env", "GOROOT")
	if err != nil {
		return err
	}
	if err := t.addLicensesOf("go@"+info.GoVersion, root); err != nil {
		return err
	}
	for _, m := range info.Deps {
		dir, err := sourceOf(m)
		if err != nil {
			return err
		}
		if err := t.addLicensesOf(m.Path+"@"+m.Version, dir); err != nil {
			return err
		}
	}
	return nil
}

// sourceOf is the directory of a module in the cache.
func sourceOf(m *debug.Module) (string, error) {
	if m.Replace != nil {
		return "", fmt.Errorf("%s is replaced by %s: whose licence is it?", m.Path, m.Replace.Path)
	}
	return goOutput("list", "-m", "-f", "{{.Dir}}", m.Path)
}

func goOutput(args ...string) (string, error) {
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (t tree) addLicensesOf(name, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if base := filepath.Base(f); licenseFile.MatchString(base) && !strings.HasSuffix(base, ".go") {
			if err := t.add(licenses+name+"/"+base, f, false); err != nil {
				return err
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%s has no licence file in %s", name, dir)
	}
	return nil
}
