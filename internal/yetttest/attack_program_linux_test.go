package yetttest

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// shown decodes a card.
func shown(t testing.TB, c Card) (card approval.Card) {
	t.Helper()
	must(t, json.Unmarshal(c.Card, &card))
	return card
}

// says wants one of the words on a card.
func says(t testing.TB, card approval.Card, word string) {
	t.Helper()
	if !slices.Contains(card.Verified.Words, word) {
		t.Errorf("the card says %q, not %q", card.Verified.Words, word)
	}
}

// copyOf copies this test's program under a name of the attacker's choice.
func copyOf(t testing.TB, dir, name string) string {
	t.Helper()
	to := filepath.Join(dir, name)
	syscall.ForkLock.RLock() // a child forked meanwhile would hold it open for writing
	defer syscall.ForkLock.RUnlock()
	must(t, copyFile("/proc/self/exe", to, 0o755))
	return to
}

// TestAttackRenamedProgram: a program takes the file name, the process name and
// the arguments of others. None makes it the shim, and the card shows its file.
func TestAttackRenamedProgram(t *testing.T) {
	b, up := demoBroker(t)
	dir := t.TempDir()
	p := newPuppet(t, copyOf(t, dir, "yett-mcp"))
	p.do("connect", b.Location().Socket)
	p.refused(wire.CodeAttributionFailed, "hello", "shim", "yett-mcp")
	b.refusedRow(wire.CodeAttributionFailed, "installed")

	c := exec.Command(copyOf(t, dir, "liar"))
	c.Args = []string{"/usr/bin/claude", "--familiar"}
	liar := startPuppet(t, c).greets(b)
	liar.do("rename", "claude")
	_, card := liar.granted(b, "http:demo.read")
	v := shown(t, card)
	if path := v.Verified.Agent.Kernel.ExePath; path != filepath.Join(dir, "liar") {
		t.Errorf("the card shows the program %s", path)
	}
	if len(v.Claimed.Process.Argv) == 0 || v.Claimed.Process.Argv[0] != "/usr/bin/claude" {
		t.Errorf("the arguments do not stand with the claims: %+v", v.Claimed)
	}
	up.only(t)
}

// TestAttackLyingHello: a client claims another program, another role and facts
// of its own making. They stand with the claims, and none of them gives a right.
func TestAttackLyingHello(t *testing.T) {
	b, up := demoBroker(t)
	p := newPuppet(t)
	p.do("connect", b.Location().Socket)
	p.do("send", `{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol_min":1,"protocol_max":1,"program":"claude","version":"9","role":"cli",`+
		`"labels":{"verified":"yes","pid":"1","exe_path":"/usr/bin/claude","guard":"inotify","words":""}}}`)
	var r struct{ Result wire.HelloResult }
	must(t, json.Unmarshal([]byte(p.do("read")), &r))
	p.do("send", fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"session.open","params":{"nonce":%q,"capabilities":["http:demo.read"]}}`, r.Result.Nonce))
	p.do("read")
	v := shown(t, b.WaitCard())
	if v.Verified.Agent.Kernel.PID != p.pid || strings.Contains(v.Verified.Agent.Kernel.ExePath, "claude") {
		t.Errorf("the card believes it: %+v", v.Verified)
	}
	if v.Claimed.Program != "claude" || v.Claimed.Labels["exe_path"] != "/usr/bin/claude" {
		t.Errorf("the claims: %+v", v.Claimed)
	}
	p.do("connect", b.Location().Socket)
	p.refused(wire.CodeBadRequest, "hello", "broker", "yett")
	up.only(t)
}

// TestAttackReplacedProgram: the program's file is replaced while it runs, so
// that the person who looks at the path sees a harmless one.
func TestAttackReplacedProgram(t *testing.T) {
	b, _ := demoBroker(t)
	dir := t.TempDir()
	running := copyOf(t, dir, "agent")
	p := newPuppet(t, running)
	image, err := os.ReadFile(running)
	must(t, err)
	must(t, os.WriteFile(running+".new", []byte("#!/bin/sh\necho harmless\n"), 0o755))
	must(t, os.Rename(running+".new", running))
	p.greets(b)
	_, card := p.granted(b, "http:demo.read")
	v := shown(t, card)
	says(t, v, "program replaced on disk")
	sum := sha256.Sum256(image)
	if got := v.Verified.Agent.Filesystem.SHA256; got != hex.EncodeToString(sum[:]) {
		t.Errorf("the digest is not that of the running program: %q, %s", got, v.Verified.Agent.Filesystem.NotHashed)
	}
}

// TestAttackRunsFromMemory: a program that never was a file.
func TestAttackRunsFromMemory(t *testing.T) {
	b, _ := demoBroker(t)
	p := newPuppet(t)
	p.do("memfd")
	p.greets(b)
	_, card := p.granted(b, "http:demo.read")
	says(t, shown(t, card), "runs from memory")
}

// TestAttackHiddenProgram: a process that the kernel shows to nobody of its
// account says so on its card, and is not the shim.
func TestAttackHiddenProgram(t *testing.T) {
	b, _ := demoBroker(t)
	p := newPuppet(t)
	p.do("hide")
	p.do("connect", b.Location().Socket)
	p.refused(wire.CodeAttributionFailed, "hello", "shim", "yett-mcp")
	p.greets(b)
	id, card := p.granted(b, "http:demo.read")
	says(t, shown(t, card), "program hidden")
	p.acts("/v1/hidden")

	seen := newPuppet(t).greets(b) // one that was seen and hides later has changed
	id2, _ := seen.granted(b, "http:demo.read")
	seen.do("hide")
	seen.refused(wire.CodeSessionEnded, "act", "/v1/evil")
	b.changed(id2, wire.CodeSessionEnded)
	for _, s := range b.Sessions() {
		if s.SessionID == id && s.State != "active" {
			t.Errorf("the other session is %s", s.State)
		}
	}
}

// TestAttackSameCacheKeys: on a tmpfs a file's content changes by a shared
// mapping while device, inode, size and both times stay as they were. The second
// card shows the digest of the second content.
func TestAttackSameCacheKeys(t *testing.T) {
	b, _ := demoBroker(t)
	dir, err := os.MkdirTemp("/dev/shm", "ya")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	agent := filepath.Join(dir, "agent")
	must(t, copyFile("/bin/sh", agent, 0o755))
	digest := func() string {
		t.Helper()
		h := b.host(exec.Command(agent, "-c", `"$0" --home "$1"; exit $?`, Bin("yett-mcp"), b.Home), nil).start().ready()
		id := h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":0}`).session(t).Pending.ApprovalID
		f := shown(t, b.CardOf(id)).Verified.Agent.Filesystem
		h.in.Close()
		h.gone()
		content, err := os.ReadFile(agent)
		must(t, err)
		if sum := sha256.Sum256(content); f.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("the card shows %q (%s) for a file of digest %x", f.SHA256, f.NotHashed, sum)
		}
		return f.SHA256
	}
	var before, after unix.Stat_t
	first := digest()
	must(t, unix.Stat(agent, &before))
	f, err := os.OpenFile(agent, os.O_RDWR, 0)
	must(t, err)
	memory, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	memory[12]++ // padding of the identification: another content, the same program
	must(t, unix.Munmap(memory))
	must(t, f.Close())
	must(t, unix.Stat(agent, &after))
	if before.Ino != after.Ino || before.Size != after.Size || before.Mtim != after.Mtim || before.Ctim != after.Ctim {
		t.Fatalf("this file system notices it: %+v, %+v", before, after)
	}
	if second := digest(); second == first {
		t.Error("two contents, one digest")
	}
}

// TestAttackSlowExecutable: a program that takes for ever to read must not keep
// the broker, or the person, from anything: it gets no digest and the card says
// why.
func TestAttackSlowExecutable(t *testing.T) {
	b, up := demoBroker(t)
	dir, err := os.MkdirTemp("/dev/shm", "ya")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	agent := filepath.Join(dir, "agent")
	must(t, copyFile("/bin/sh", agent, 0o755))
	must(t, os.Truncate(agent, 256<<30)) // a hole: nothing on disk, minutes to read
	h := b.host(exec.Command(agent, "-c", `"$0" --home "$1"; exit $?`, Bin("yett-mcp"), b.Home), nil).start().ready()
	id := h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":0}`).session(t).Pending.ApprovalID
	f := shown(t, b.CardOf(id)).Verified.Agent.Filesystem
	if f.SHA256 != "" || !strings.Contains(f.NotHashed, "larger than") {
		t.Errorf("the card shows %+v", f)
	}
	other := newPuppet(t).greets(b) // meanwhile
	other.granted(b, "http:demo.read")
	other.acts("/v1/own")
	up.only(t, "GET /v1/own")
}

// TestAttackPreloadedLibrary: yett-mcp and yett take no code from the
// environment: they are static.
func TestAttackPreloadedLibrary(t *testing.T) {
	dir := t.TempDir()
	source, library, mark := filepath.Join(dir, "l.c"), filepath.Join(dir, "l.so"), filepath.Join(dir, "mark")
	must(t, os.WriteFile(source, []byte(`#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { const char *m = getenv("MARK"); if (m) open(m, O_CREAT | O_WRONLY, 0600); }
`), 0o600))
	must(t, run("gcc", "-shared", "-fPIC", "-o", library, source))
	loads := func(program string, args ...string) bool {
		t.Helper()
		os.Remove(mark)
		c := exec.Command(program, args...)
		c.Env = []string{"LD_PRELOAD=" + library, "LD_AUDIT=" + library, "LD_LIBRARY_PATH=" + dir, "MARK=" + mark}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		_, err := os.Stat(mark)
		return err == nil
	}
	if !loads("/bin/ls", "/") {
		t.Fatal("the library is not loaded by anything: this test shows nothing")
	}
	for _, program := range []string{"yett", "yett-mcp"} {
		args := []string{"version"}
		if program == "yett-mcp" {
			args = []string{"--version"}
		}
		if loads(Static(program), args...) {
			t.Errorf("%s loads a library that its environment names", program)
		}
		image, err := elf.Open(Static(program))
		must(t, err)
		for _, part := range image.Progs {
			if part.Type == elf.PT_INTERP {
				t.Errorf("%s names a loader", program)
			}
		}
		image.Close()
	}
}
