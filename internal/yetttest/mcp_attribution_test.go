package yetttest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// TestAttackCopiedShim: only the installed yett-mcp may speak for an agent.
func TestAttackCopiedShim(t *testing.T) {
	b, _ := demoBroker(t)
	copied := filepath.Join(t.TempDir(), "yett-mcp")
	must(t, copyFile(Bin("yett-mcp"), copied, 0o755))
	must(t, os.Symlink(Bin("yett"), filepath.Join(filepath.Dir(copied), "yett"))) // so that it finds its broker
	h := b.host(exec.Command(copied, "--home", b.Home), nil).start().ready()
	h.call("list_access", "{}").refused(t, "attribution_failed", "Nothing was executed")
	b.refusedRow(wire.CodeAttributionFailed, "installed")
	if s := b.shims(); len(s) != 0 {
		t.Errorf("a session: %+v", s)
	}
}

// refusedRow wants the ledger to have a refusal.
func (b *Broker) refusedRow(parts ...string) {
	b.T.Helper()
rows:
	for _, r := range b.Activity() {
		for _, p := range parts {
			if !strings.Contains(string(r.Outcome)+string(r.Request), p) {
				continue rows
			}
		}
		if r.Kind == "refused" {
			return
		}
	}
	b.T.Errorf("no row of a refusal with %q", parts)
}

// shims returns the sessions of shims.
func (b *Broker) shims() (found []wire.Session) {
	b.T.Helper()
	for _, s := range b.Sessions() {
		if s.Caller.Role == wire.RoleShim {
			found = append(found, s)
		}
	}
	return found
}

// TestAttackReparentedShim: the process that started yett-mcp is gone before
// anything was asked.
func TestAttackReparentedShim(t *testing.T) {
	b, _ := demoBroker(t)
	orphan := exec.Command("/bin/sh", "-c",
		`exec 3<&0; p=$$; { while [ -d /proc/$p ]; do sleep 0.01; done; exec "$0" --home "$1"; } <&3 3<&- &`, Bin("yett-mcp"), b.Home)
	h := b.host(orphan, nil).start()
	<-h.exited // the shell has ended; what it left behind speaks on
	h.ready()
	h.call("list_access", "{}").refused(t, "attribution_failed", "yett connect writes it so")
	b.refusedRow(wire.CodeAttributionFailed)
	if s := b.shims(); len(s) != 0 {
		t.Errorf("a session: %+v", s)
	}
}

// TestAttackWrappedShim: a shell between agent and yett-mcp. On a pipe the
// card names the shell; on a socket the kernel says that another process made
// it, and there is no session.
func TestAttackWrappedShim(t *testing.T) {
	b, _ := demoBroker(t)
	wrapped := []string{"/bin/sh", "-c", `"$0" --home "$1"; exit $?`, Bin("yett-mcp"), b.Home}
	h := b.host(exec.Command(wrapped[0], wrapped[1:]...), nil).start().ready()
	h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":0}`).wants(t, "pending: ")
	var card approval.Card
	must(t, json.Unmarshal(b.WaitCard().Card, &card))
	if card.Verified.Agent.Kernel.PID != h.cmd.Process.Pid || !strings.Contains(strings.Join(card.Verified.Words, ";"), "runtime") {
		t.Errorf("the card does not name the shell: %+v", card.Verified)
	}
	n := b.startNode(wrapped...)
	n.call("list_access", map[string]any{}).refused(t, "attribution_failed", "yett connect writes it so")
	b.refusedRow(wire.CodeAttributionFailed)
	if s := b.shims(); len(s) != 1 {
		t.Errorf("%d sessions of shims, want that of the pipe", len(s))
	}
}
