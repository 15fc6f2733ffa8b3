package sshexec_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
)

// Another server than OpenSSH: commands share a connection, their ends are told
// apart, both streams are drained, terminals are given, and files are copied.
func TestDropbearRunsKeepsAndCopies(t *testing.T) {
	_, private, line := keygen(t, "-t", "ed25519", "-N", "", "-C", "")
	d := startDropbear(t, []string{"ed25519"}, line)
	e, k := newExecutor(), parseKey(t, private)
	defer e.Close()
	tg := d.target(d.hostKeys...)
	tg.Session = "s"
	p := newCounter(t, tg.Address)
	tg.Address = p.address
	for range 3 {
		runs(t, e, tg, k, "echo one", "one\n")
	}
	happens(t, p.accepted, "connecting")
	select {
	case <-p.accepted:
		t.Error("a second connection was made")
	default:
	}
	for command, want := range map[string]string{"exit 3": `{"status":3}`, "kill -TERM $$": `{"signal":"TERM"}`} {
		res, err := e.Do(t.Context(), tg, k, action.SSH{Command: command})
		if err != nil || show(res.Exit) != want {
			t.Errorf("%s: %+v, %v", command, res, err)
		}
	}
	small := tg
	small.MaxOutput = 1000
	const flood = "head -c 5000000 /dev/zero"
	res, err := e.Do(t.Context(), small, k, action.SSH{Command: flood + " & " + flood + " >&2; wait"})
	if err != nil || res.StdoutTotal != 5_000_000 || len(res.Stdout) != 1000 || res.StderrTotal < 5_000_000 || len(res.Stderr) != 1000 {
		t.Errorf("floods: %+v, %v", res.Exit, err)
	}
	if res, err = e.Do(t.Context(), tg, k, action.SSH{Command: "test -t 0 && cat", Stdin: []byte("in\n"), PTY: true}); err != nil || string(res.Stdout) != "in\n" {
		t.Errorf("terminal: %+v, %v", res, err)
	}
	if _, err := os.Stat("/usr/lib/sftp-server"); err != nil {
		return // Dropbear has no SFTP server of its own
	}
	dir := realDir(t)
	remote, data := filepath.Join(dir, "f"), noise(1<<20)
	if _, err := e.Copy(t.Context(), tg, k, sshexec.Transfer{Remote: remote, Source: bytes.NewReader(data), MaxSize: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	if _, err := e.Copy(t.Context(), tg, k, sshexec.Transfer{Remote: remote, Sink: &back, MaxSize: 2 << 20}); err != nil || !bytes.Equal(back.Bytes(), data) {
		t.Errorf("%d bytes came back, %v", back.Len(), err)
	}
	if _, err := e.Copy(t.Context(), tg, k, sshexec.Transfer{Remote: remote, Source: strings.NewReader("x"), MaxSize: 2 << 20}); err == nil {
		t.Error("a file that was there was replaced")
	}
	onlyFiles(t, dir, "f")
}
