package main

import (
	"bytes"
	"debug/macho"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/yett-broker/yett/internal/macos"
)

// build makes a small program for macOS.
func buildMac(t *testing.T, arch string) []byte {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "program"), source)
	c.Env = append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0", "GO111MODULE=off")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// linkerFlags are what Go's linker signs with, under the name a.out.
const linkerFlags = flagAdHoc | 0x20000

// TestSignsAsTheLinkerDoes: for arm64 Go's own linker signs, and what it wrote
// is what comes out here, byte for byte, with its signature there and without.
func TestSignsAsTheLinkerDoes(t *testing.T) {
	linked := buildMac(t, "arm64")
	again, err := signAdHoc(linked, "a.out", linkerFlags)
	if err != nil || !bytes.Equal(linked, again) {
		t.Fatalf("signed again: %d and %d bytes, the first difference at %d: %v", len(linked), len(again), difference(linked, again), err)
	}
	bare := strip(t, linked)
	if err := checkSigned(bare); err == nil {
		t.Fatal("the signature was not taken out")
	}
	again, err = signAdHoc(bare, "a.out", linkerFlags)
	if err != nil || !bytes.Equal(linked, again) {
		t.Fatalf("signed anew: %d and %d bytes, the first difference at %d: %v", len(linked), len(again), difference(linked, again), err)
	}
}

// strip takes the signature and its command, the last one, out of a program.
func strip(t *testing.T, program []byte) []byte {
	t.Helper()
	p, err := splitSignature(program)
	if err != nil {
		t.Fatal(err)
	}
	b, le := bytes.Clone(p.code), binary.LittleEndian
	commands, size := le.Uint32(b[16:]), le.Uint32(b[20:])
	if p.command+signatureCommand != machoHeader+int(size) {
		t.Fatal("the signature's command is not the last one")
	}
	clear(b[p.command : p.command+signatureCommand])
	le.PutUint32(b[16:], commands-1)
	le.PutUint32(b[20:], size-signatureCommand)
	return b
}

func difference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestUniversal: both architectures are signed, are found again by another
// reader as they were, and a changed byte is noticed.
func TestUniversal(t *testing.T) {
	var thin [][]byte
	for _, arch := range []string{"amd64", "arm64"} {
		signed, err := signAdHoc(buildMac(t, arch), "yett", flagAdHoc)
		if err != nil {
			t.Fatal(err)
		}
		thin = append(thin, signed)
	}
	whole, err := universal(thin...)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSigned(whole); err != nil {
		t.Error(err)
	}
	f, err := macho.NewFatFile(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Arches) != 2 || f.Arches[0].Cpu != macho.CpuAmd64 || f.Arches[1].Cpu != macho.CpuArm64 {
		t.Fatalf("architectures %v", f.Arches)
	}
	for i, a := range f.Arches {
		if a.Offset%(1<<14) != 0 || !bytes.Equal(whole[a.Offset:a.Offset+a.Size], thin[i]) {
			t.Errorf("%v lies at %d, and is not what was joined", a.Cpu, a.Offset)
		}
		codes, err := macos.ReadCode(bytes.NewReader(thin[i]), int64(len(thin[i])))
		if err != nil || len(codes) != 1 || codes[0].Identifier != "yett" || codes[0].Flags != macos.StatusAdHoc {
			t.Errorf("%v: %+v, %v", a.Cpu, codes, err)
		}
		whole[a.Offset+a.Size/2] ^= 1
		if checkSigned(whole) == nil {
			t.Errorf("a changed byte of %v is not noticed", a.Cpu)
		}
		whole[a.Offset+a.Size/2] ^= 1
	}
	if unsigned := buildMac(t, "amd64"); checkSigned(unsigned) == nil {
		t.Error("a program without a signature passes for a signed one")
	}
	if _, err := signAdHoc([]byte("\x7fELF"), "yett", flagAdHoc); err == nil {
		t.Error("what is no program for macOS was signed")
	}
}
