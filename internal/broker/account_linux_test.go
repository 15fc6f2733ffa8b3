package broker_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const ordinary = 64917

// TestAnotherAccountIsNotAttributed: file modes keep other accounts out, and
// root is only kept out by the broker: it takes processes of its own account.
func TestAnotherAccountIsNotAttributed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root passes the socket's file modes")
	}
	dir, err := os.MkdirTemp("", "ya")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "github.com/yett-broker/yett/cmd/yett")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building yett: %v\n%s", err, out)
	}
	work := filepath.Join(dir, "w")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(work, ordinary, ordinary); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(work, "h")
	asOrdinary := func(args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(dir, "yett"), append(args, "--home", home)...)
		c.Dir, c.Env = work, []string{}
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
		return c
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.WriteString("four words of a passphrase\n")
	w.Close()
	init := asOrdinary("init", "--passphrase-fd", "3")
	init.ExtraFiles = []*os.File{r}
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	serve := asOrdinary("serve")
	logs, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serve.Process.Kill()
		serve.Wait()
	})
	awaitText(t, logs, "serving, locked")

	conn, err := net.Dial("unix", filepath.Join(home, "run", "broker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, `{"jsonrpc":"2.0","id":7,"method":"hello","params":{"protocol_min":1,"protocol_max":1,"program":"x","version":"1","role":"native"}}`+"\n")
	reply, _ := io.ReadAll(conn) // to the end: the channel is closed
	if !strings.Contains(string(reply), `"code":"attribution_failed"`) || !strings.Contains(string(reply), `"id":7`) {
		t.Fatalf("root was answered: %s", reply)
	}
}

func awaitText(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := r.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("it ended with: %s", seen.String())
		}
	}
}
