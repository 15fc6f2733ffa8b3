package yetttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// wireTap is a proxy before a host: it counts connections, and bytes to it.
type wireTap struct {
	address        string
	accepted, sent atomic.Int64
	gone           chan struct{} // told of the end of each connection
}

func tap(t testing.TB, to string) *wireTap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	w := &wireTap{address: l.Addr().String(), gone: make(chan struct{}, 64)}
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			w.accepted.Add(1)
			go w.pass(down.(*net.TCPConn), to)
		}
	}()
	return w
}

func (w *wireTap) pass(down *net.TCPConn, to string) {
	defer func() { w.gone <- struct{}{} }()
	defer down.Close()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		io.Copy(down, up)
		down.Close()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := down.Read(b)
		if err != nil {
			return
		}
		w.sent.Add(int64(n))
		if _, err := up.Write(b[:n]); err != nil {
			return
		}
	}
}

// closes wants a connection to end.
func (w *wireTap) closes(t testing.TB, what string) {
	t.Helper()
	select {
	case <-w.gone:
	case <-time.After(Patience):
		t.Fatalf("%s: the connection was not closed", what)
	}
}

// box is a broker with a host behind a tap, a declared directory here and one
// there, and what lies beside them.
type box struct {
	*Broker
	tap           *wireTap
	local, remote string
	access        string
}

func startBox(t *testing.T) *box {
	t.Helper()
	at := reachableSSHD(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	x := &box{tap: tap(t, at.Address), local: filepath.Join(root, "local"), remote: filepath.Join(root, "remote")}
	for _, dir := range []string{x.local, filepath.Join(x.remote, "pub"), filepath.Join(x.remote, "private")} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	b := New(t)
	x.access = fmt.Sprintf(`
[credential.key]
kind = "ssh-key"

[host.box]
address = %[1]q
user = %[2]q
key = "key"
host_keys = [%[3]q]

[capability."ssh:box.run"]
host = "box"
commands = ["echo *", "cat *", "seq 1 2000000", "test -t 0"]

[capability."ssh-copy:box.files"]
host = "box"
direction = "both"
remote = ["%[4]s/pub/**"]
local = [%[5]q, %[6]q]
max_size = "8GiB"
overwrite = true

[capability."ssh-copy:box.fetch"]
host = "box"
direction = "down"
remote = ["%[4]s/pub/*"]
local = [%[5]q]
max_size = "1KiB"

[capability."ssh-copy:box.programs"]
host = "box"
direction = "down"
remote = ["%[4]s/pub/*"]
local = [%[7]q]
max_size = "1KiB"

[capability."ssh-copy:box.each"]
host = "box"
direction = "up"
remote = ["%[4]s/pub/*"]
local = [%[5]q]
confirm = "each"
`, x.tap.address, at.User, at.HostKey, x.remote, x.local, filepath.Dir(b.Home), filepath.Dir(Bin("yett")))
	b.Serve()
	b.Unlock()
	b.Apply(x.access)
	b.SetSecret("key", string(at.ClientKey))
	x.Broker = b
	return x
}

func (x *box) here(name string) string  { return filepath.Join(x.local, name) }
func (x *box) there(name string) string { return filepath.Join(x.remote, name) }

func (x *box) write(path, content string) {
	x.T.Helper()
	must(x.T, os.WriteFile(path, []byte(content), 0o600))
}

func copying(direction, local, remote string) map[string]any {
	return map[string]any{"direction": direction, "local": local, "remote": remote}
}

// copied decodes the result of a copy that was done.
func copied(t testing.TB, op Operation) (r wire.CopyResult) {
	t.Helper()
	if op.State != "completed" || json.Unmarshal(op.Result, &r) != nil || r.SHA256 == "" {
		t.Fatalf("state %s, %+v: %s", op.State, op.Reason, op.Result)
	}
	return r
}

// TestSSHCopy: files go both ways, and nowhere else.
func TestSSHCopy(t *testing.T) {
	x := startBox(t)
	c := x.Granted("ssh:box.run", "ssh-copy:box.files", "ssh-copy:box.fetch", "ssh-copy:box.each", "ssh-copy:box.programs")

	t.Run("both ways", func(t *testing.T) { x.bothWays(t, c) })
	t.Run("each", func(t *testing.T) { x.eachCopy(t, c) })
	t.Run("refused", func(t *testing.T) { x.refusedCopies(t, c) })
	t.Run("E5", func(t *testing.T) { x.revokedCopy(t) })
	t.Run("a part is left", func(t *testing.T) { x.partLeft(t) })
}

func (x *box) bothWays(t *testing.T, c *Channel) {
	x.write(x.here("report.txt"), "a report\n")
	up := c.MustAct("ssh-copy:box.files", copying("up", x.here("report.txt"), x.there("pub/report.txt")))
	r := copied(t, up)
	want := fmt.Sprintf("%x", sha256.Sum256([]byte("a report\n")))
	if got, err := os.ReadFile(x.there("pub/report.txt")); err != nil || string(got) != "a report\n" || r.SHA256 != want || r.Size != 9 || r.Replaced {
		t.Errorf("up: %+v, the host has %q, %v", r, got, err)
	}
	r = copied(t, c.MustAct("ssh-copy:box.fetch", copying("down", x.here("back.txt"), x.there("pub/report.txt"))))
	if got, err := os.ReadFile(x.here("back.txt")); err != nil || string(got) != "a report\n" || r.SHA256 != want || r.Replaced {
		t.Errorf("down: %+v, here is %q, %v", r, got, err)
	}
	x.write(x.there("pub/report.txt"), "a newer report\n")
	again := copying("down", x.here("back.txt"), x.there("pub/report.txt"))
	again["overwrite"] = true
	if r = copied(t, c.MustAct("ssh-copy:box.files", again)); !r.Replaced {
		t.Errorf("down again: %+v", r)
	}
	for _, row := range x.Activity() { // digest and size are in the ledger, and what the host proved itself by
		if row.OperationID == up.OperationID && row.Kind == "outcome" && bytes.Contains(row.Outcome, []byte(want)) && bytes.Contains(row.Outcome, []byte("host_key")) {
			return
		}
	}
	t.Error("no row has the digest of the file that went up")
}

// eachCopy: a card for one copy says in full what is copied where.
func (x *box) eachCopy(t *testing.T, c *Channel) {
	x.write(x.here("release.tar"), "content")
	done := make(chan Reply, 1)
	go func() {
		done <- c.Act("ssh-copy:box.each", copying("up", x.here("release.tar"), x.there("pub/release.tar")))
	}()
	card := x.WaitCard()
	for _, part := range []string{`"direction":"up"`, `"local":"` + x.here("release.tar"), `"remote":"` + x.there("pub/release.tar"), "box.each"} {
		if !strings.Contains(string(card.Card), part) {
			t.Errorf("the card lacks %s: %s", part, card.Card)
		}
	}
	x.Approve(card)
	if r := <-done; !strings.Contains(string(r.Result), `"completed"`) {
		t.Errorf("%s", r.Result)
	}
}

func (x *box) refusedCopies(t *testing.T, c *Channel) {
	x.write(x.there("private/key"), "not for agents")
	x.write(x.there("pub/file"), "content")
	x.write(x.there("pub/long"), strings.Repeat("x", 1025))
	x.write(x.here("file"), "here")
	secret := filepath.Join(filepath.Dir(x.local), "secret")
	x.write(secret, "a secret")
	must(t, os.Symlink(secret, x.here("link")))
	must(t, os.Link(secret, x.here("hard")))
	must(t, os.Symlink(filepath.Dir(x.local), x.here("up")))
	must(t, os.Symlink(x.there("private/key"), x.there("pub/link")))
	must(t, syscall.Mkfifo(x.here("fifo"), 0o600))
	overwriting := copying("down", x.here("file"), x.there("pub/file"))
	overwriting["overwrite"] = true
	const files, fetch = "ssh-copy:box.files", "ssh-copy:box.fetch"
	for name, a := range map[string]struct {
		capability string
		action     map[string]any
		want       string // a reason, an error's code, or words of what was not sent
	}{
		"another remote directory":     {files, copying("down", x.here("new"), x.there("private/key")), "action_outside_capability"},
		"dots to it":                   {files, copying("down", x.here("new"), x.remote+"/pub/../private/key"), "bad_request"},
		"deeper than one segment":      {fetch, copying("down", x.here("new"), x.there("pub/a/b")), "action_outside_capability"},
		"a wildcard":                   {files, copying("down", x.here("new"), x.there("pub/*")), "bad_request"},
		"the other direction":          {fetch, copying("up", x.here("file"), x.there("pub/new")), "action_outside_capability"},
		"overwriting where it may not": {fetch, overwriting, "action_outside_capability"},
		"another local directory":      {files, copying("up", secret, x.there("pub/new")), "action_outside_capability"},
		"dots out of the directory":    {files, copying("up", x.local+"/../secret", x.there("pub/new")), "bad_request"},
		"a relative path":              {files, copying("up", "file", x.there("pub/new")), "bad_request"},
		"no direction":                 {files, copying("", x.here("file"), x.there("pub/new")), "bad_request"},
		"a command":                    {files, map[string]any{"command": "cat /etc/passwd"}, "bad_request"},
		"a copy by a command's":        {"ssh:box.run", copying("up", x.here("file"), x.there("pub/new")), "bad_request"},
		"a local link":                 {files, copying("up", x.here("link"), x.there("pub/new")), "symbolic link"},
		"a local link on the way":      {files, copying("up", x.here("up/secret"), x.there("pub/new")), "symbolic link"},
		"a local hard link":            {files, copying("up", x.here("hard"), x.there("pub/new")), "hard link"},
		"a local FIFO":                 {files, copying("up", x.here("fifo"), x.there("pub/new")), "no regular file"},
		"Yett's vault":                 {files, copying("up", filepath.Join(x.Home, "vault.yett"), x.there("pub/new")), "Yett's own directory"},
		"onto Yett's vault":            {files, copying("down", filepath.Join(x.Home, "vault.yett"), x.there("pub/file")), "Yett's own directory"},
		"onto the socket":              {files, copying("down", x.Location().Socket, x.there("pub/file")), "Yett's own directory"},
		"beside the programs":          {"ssh-copy:box.programs", copying("down", filepath.Join(filepath.Dir(Bin("yett")), "new"), x.there("pub/file")), "that of its programs"},
		"a remote link":                {files, copying("down", x.here("new"), x.there("pub/link")), "no regular file"},
		"a local file that is there":   {fetch, copying("down", x.here("file"), x.there("pub/file")), "not to be overwritten"},
		"a remote file that is there":  {files, copying("up", x.here("file"), x.there("pub/file")), "not to be overwritten"},
		"longer than it may be":        {fetch, copying("down", x.here("new"), x.there("pub/long")), "more than 1024 bytes"},
		"no such file":                 {fetch, copying("down", x.here("new"), x.there("pub/nothing")), "there is no file"},
		"a terminal":                   {"ssh:box.run", map[string]any{"command": "test -t 0", "pty": true}, "action_outside_capability"},
		"a variable":                   {"ssh:box.run", map[string]any{"command": "echo x", "env": map[string]any{"LD_PRELOAD": "/x"}}, "action_outside_capability"},
		"standard input twice":         {"ssh:box.run", map[string]any{"command": "echo x", "stdin": "a", "stdin_base64": "YQ=="}, "bad_request"},
	} {
		r := c.Act(a.capability, a.action)
		var op Operation
		if r.Error == nil {
			must(t, json.Unmarshal(r.Result, &op))
		}
		got := r.Code() + " " + string(op.Result)
		if op.Reason != nil {
			got += op.Reason.Code
		}
		if !strings.Contains(got, a.want) || strings.Contains(got, `"sha256"`) {
			t.Errorf("%s: %s %s, want %s", name, op.State, got, a.want)
		}
	}
	for _, path := range []string{x.there("pub/new"), x.here("new")} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
	for path, want := range map[string]string{x.here("file"): "here", x.there("pub/file"): "content", secret: "a secret"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s reads %q, %v", path, got, err)
		}
	}
	noParts(t, x.local, x.there("pub"))
}

func noParts(t testing.TB, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		parts, err := filepath.Glob(filepath.Join(dir, ".yett-*"))
		must(t, err)
		if len(parts) > 0 {
			t.Errorf("parts are left: %v", parts)
		}
	}
}

// revokedCopy: chunks stop with the session.
func (x *box) revokedCopy(t *testing.T) {
	c := x.Granted("ssh-copy:box.files")
	x.write(x.there("pub/huge"), "")
	must(t, os.Truncate(x.there("pub/huge"), 4<<30))
	before := x.tap.sent.Load()
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "ssh-copy:box.files", "action": copying("down", x.here("huge"), x.there("pub/huge"))}), &op)
	x.eventually(func() bool { return x.tap.sent.Load() > before+20_000 }) // requests for many chunks
	x.RunPlain("revoke", c.Session.SessionID)
	time.Sleep(100 * time.Millisecond) // what the rule gives
	after := x.tap.sent.Load()
	if state := x.outcomeOf(op.OperationID); state != "denied" {
		t.Errorf("the outcome is %s", state)
	}
	time.Sleep(100 * time.Millisecond)
	if n := x.tap.sent.Load() - after; n != 0 {
		t.Errorf("%d bytes were sent later than 100 ms after the revocation", n)
	}
	if _, err := os.Stat(x.here("huge")); err == nil {
		t.Error("the file has its place")
	}
	noParts(t, x.local)
}

// TestSSHConnections: commands of a session share a connection, and it ends with
// the session, a lock, and a change of the access file.
func TestSSHConnections(t *testing.T) {
	x := startBox(t)
	echo := func(c *Channel) {
		t.Helper()
		if op := c.MustAct("ssh:box.run", map[string]any{"command": "echo one"}); op.State != "completed" {
			t.Fatalf("%+v %s", op, op.Result)
		}
	}
	connections := int64(0)
	open := func(c *Channel) {
		t.Helper()
		for range 2 {
			echo(c)
		}
		if connections++; x.tap.accepted.Load() != connections {
			t.Fatalf("%d connections, want %d", x.tap.accepted.Load(), connections)
		}
	}
	first, second := x.Granted("ssh:box.run"), x.Granted("ssh:box.run")
	open(first)
	open(second)
	x.RunPlain("revoke", first.Session.SessionID)
	x.tap.closes(t, "revoked")
	echo(second)
	x.Apply(strings.Replace(x.access, `"1KiB"`, `"2KiB"`, 1))
	x.tap.closes(t, "another access file")
	open(second)
	x.RunPlain("lock", "--pause")
	x.tap.closes(t, "paused")
	x.Unlock()
	open(second)
	second.Conn().Close()
	x.tap.closes(t, "the channel closed")

	third := x.Granted("ssh:box.run")
	open(third)
	x.RunPlain("lock")
	x.tap.closes(t, "locked")
	x.Unlock()
	fourth := x.Granted("ssh:box.run")
	open(fourth)
	long := fourth.MustAct("ssh:box.run", map[string]any{"command": "seq 1 2000000"})
	x.longOutput(t, fourth, long)
	x.revokedCommand(t)
	x.Stop()
}

// longOutput: of a stream that is too long its beginning and its end are kept.
func (x *box) longOutput(t *testing.T, c *Channel, op Operation) {
	var r wire.SSHResult
	must(t, json.Unmarshal(op.Result, &r))
	if !r.StdoutTruncated || r.StdoutSize != 10<<20 || r.StdoutTotal <= r.StdoutSize || r.StdoutTailRef == "" || r.StderrTailRef != "" {
		t.Fatalf("%+v", r)
	}
	var b wire.OperationBodyResult
	c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": r.StdoutTailRef, "offset": 0, "limit": 512 << 10}), &b)
	if !bytes.HasSuffix(b.BytesBase64, []byte("\n1999999\n2000000\n")) || b.Size != 64<<10 {
		t.Errorf("the end has %d bytes", b.Size)
	}
	c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": r.StdoutRef, "offset": 0, "limit": 4}), &b)
	if string(b.BytesBase64) != "1\n2\n" {
		t.Errorf("the beginning is %q", b.BytesBase64)
	}
}

// revokedCommand is E5: the outcome of what runs is learned, and nothing is sent
// for it.
func (x *box) revokedCommand(t *testing.T) {
	c := x.Granted("ssh:box.run")
	fifo := x.there("fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "ssh:box.run", "action": map[string]any{"command": "cat " + fifo}}), &op)
	var gate *os.File
	var once sync.Once
	opened := make(chan struct{})
	go func() { // opens when the command has
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			gate = f
		}
		once.Do(func() { close(opened) })
	}()
	select {
	case <-opened:
	case <-time.After(Patience):
		t.Fatal("the command did not begin")
	}
	x.RunPlain("revoke", c.Session.SessionID)
	time.Sleep(100 * time.Millisecond) // what the rule gives
	before := x.tap.sent.Load()
	io.WriteString(gate, "the end\n")
	gate.Close()
	if state := x.outcomeOf(op.OperationID); state != "completed" {
		t.Errorf("the outcome is %s", state)
	}
	if n := x.tap.sent.Load() - before; n != 0 {
		t.Errorf("%d bytes were sent later than 100 ms after the revocation", n)
	}
}

// partLeft: a copy that was stopped when a part of it lay on the host is not
// said to have never left.
func (x *box) partLeft(t *testing.T) {
	c := x.Granted("ssh-copy:box.files")
	x.write(x.here("huge up"), "")
	must(t, os.Truncate(x.here("huge up"), 4<<30))
	before := x.tap.sent.Load()
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "ssh-copy:box.files", "action": copying("up", x.here("huge up"), x.there("pub/huge up"))}), &op)
	x.eventually(func() bool { return x.tap.sent.Load() > before+1<<20 })
	x.RunPlain("revoke", c.Session.SessionID)
	if state := x.outcomeOf(op.OperationID); state != "indeterminate" {
		t.Errorf("the outcome is %s", state)
	}
	parts, err := filepath.Glob(x.there("pub/.yett-*"))
	must(t, err)
	if len(parts) != 1 {
		t.Fatalf("parts on the host: %v", parts)
	}
	for _, row := range x.Activity() {
		if row.OperationID == op.OperationID && row.Kind == "outcome" && !bytes.Contains(row.Outcome, []byte(parts[0])) {
			t.Errorf("the record does not name the part: %s", row.Outcome)
		}
	}
	must(t, os.Remove(parts[0]))
}
