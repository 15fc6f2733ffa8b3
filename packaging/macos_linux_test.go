package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSignAgain: a command may sign in place of the ad hoc signature, what it
// breaks is refused, and so is a program that it leaves without one.
func TestSignAgain(t *testing.T) {
	bare := buildMac(t, "amd64")
	signed, err := signAdHoc(bare, "yett", flagAdHoc)
	if err != nil {
		t.Fatal(err)
	}
	other, err := signAdHoc(bare, "io.github.yett-broker.yett", flagAdHoc)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"signed": other, "bare": bare, "broken": append(bytes.Clone(other), 0)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string][]byte{"": signed, "cp " + dir + "/signed": other, "cp " + dir + "/bare": nil, "cp " + dir + "/broken": nil, "false": nil} {
		r := &release{sign: command}
		got, err := r.signAgain(filepath.Join(dir, "program"), signed)
		if !bytes.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %d bytes, %v", command, len(got), err)
		}
	}
}

// TestFormula: Ruby reads it, it names every archive with its digest, and
// installs files that an archive has.
func TestFormula(t *testing.T) {
	dir := t.TempDir()
	names := []string{"yett_1.2.3_linux_amd64.tar.gz", "yett_1.2.3_amd64.deb", "yett_1.2.3_linux_arm64.tar.gz", "yett_1.2.3_darwin_universal.tar.gz"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := newRelease("v1.2.3", epoch1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range names {
		if err := r.formulaFor(dir, names[n:]); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "yett.rb"))
		if err != nil {
			t.Fatal(err)
		}
		if out := output(t, "ruby", "-wc", filepath.Join(dir, "yett.rb")); !strings.Contains(out, "Syntax OK") || strings.Contains(out, "warning") {
			t.Errorf("ruby says %s", out)
		}
		for i, name := range names {
			sum := strings.Fields(output(t, "sha256sum", filepath.Join(dir, name)))[0]
			wanted := i >= n && !strings.HasSuffix(name, ".deb")
			if got := strings.Contains(string(text), "/v1.2.3/"+name+"\"\n") && strings.Contains(string(text), sum); got != wanted {
				t.Errorf("of %d archives, %s is named: %t", len(names)-n, name, got)
			}
		}
	}
}

// TestFormulaInstallsWhatIsThere evaluates the formula with a Homebrew of four
// lines, on the archive that was made for this platform.
func TestFormulaInstallsWhatIsThere(t *testing.T) {
	made := packages(t)
	root, prefix := t.TempDir(), t.TempDir()
	output(t, "tar", "-C", root, "-xzf", one(t, made+"/*.tar.gz"))
	script := `
class Place
  def initialize(to) = @to = to
  def install(*names) = names.flatten.each { |n| raise "no #{n}" unless File.exist?(n); puts "#{@to} #{n}" }
end
class Formula
  def self.method_missing(name, *args) = block_given? ? yield : nil
  def self.test = nil
  def method_missing(name) = Place.new(name)
end
load ARGV[0]
Dir.chdir(ARGV[1]) { Yett.new.install }
`
	path := filepath.Join(prefix, "brew.rb")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	out := output(t, "ruby", path, made+"/yett.rb", one(t, root+"/*"))
	for _, want := range []string{"bin bin/yett\n", "bin bin/yett-mcp\n", "man1 share/man/man1/yett.1\n", "zsh_completion share", "doc share/doc/yett/LICENSE"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not installed:\n%s", want, out)
		}
	}
}
