package yetttest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal makes a pseudo-terminal whose slave passes bytes as they are: a
// standard input that nothing can guard.
func terminal() (mine, its *os.File, err error) {
	mine, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(mine.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(mine.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	its, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	t, err := unix.IoctlGetTermios(int(its.Fd()), unix.TCGETS)
	if err != nil {
		return nil, nil, err
	}
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	t.Iflag &^= unix.ICRNL | unix.INLCR
	t.Oflag &^= unix.OPOST
	return mine, its, unix.IoctlSetTermios(int(its.Fd()), unix.TCSETS, t)
}

// TestNoInjectionGuardEachActionIsAsked: where nobody can tell who writes to the
// shim, the card says so, and a yes to the session covers no action.
func TestNoInjectionGuardEachActionIsAsked(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	h := b.host(exec.Command(Bin("yett-mcp"), "--home", b.Home), nil)
	h.pair = terminal
	h.start().ready()

	asked := h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":0}`)
	id := asked.session(t).Pending.ApprovalID
	if card := b.CardOf(id); !bytes.Contains(card.Card, []byte("no injection guard")) || !bytes.Contains(card.Card, []byte(`"unit":"operation"`)) {
		t.Fatalf("the card does not say it: %s", card.Card)
	}
	b.ApproveTag(id, asked.tag(t))
	h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":30000}`).wants(t, "granted: ")

	for i := range 2 {
		op := h.call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/x","wait_ms":0}`).operation(t)
		if op.State != "queued" || op.Pending == nil || len(up.Seen()) != i {
			t.Fatalf("action %d: %+v, %d arrived", i, op, len(up.Seen()))
		}
		b.Approve(b.CardOf(op.Pending.ApprovalID))
		done := h.call("get_operation", `{"operation_id":"`+op.OperationID+`","wait_ms":30000}`).operation(t)
		if done.State != "completed" || len(up.Seen()) != i+1 {
			t.Fatalf("action %d: %+v, %d arrived", i, done, len(up.Seen()))
		}
	}
}
