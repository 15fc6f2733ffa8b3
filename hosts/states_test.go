//go:build hosts && linux

package hosts

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/hosts/standin"
	"github.com/yett-broker/yett/internal/yetttest"
)

var listAccess = standin.Call{Tool: "list_access", Arguments: map[string]any{}}

// TestHosts_BrokerMissing: a host whose broker does not run tells its model so,
// in words and with the next step. A tap between host and yett-mcp sees how the
// host begins.
func TestHosts_BrokerMissing(t *testing.T) {
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			b := yetttest.New(t)
			server, heard := tapped(t, yettMCP(b))
			told := h.start(t, server, listAccess).results(1)[0]
			wants(t, told, "unavailable", "yett up")
			golden(t, h.name+".missing.txt", spoken(b, told))
			golden(t, h.name+".begins.txt", beginning(heard()))
		})
	}
}

// beginning is what a host says up to its first tool call.
func beginning(all []said) string {
	var text strings.Builder
	for _, s := range all {
		version := s.version()
		if version == "" {
			version = "-"
		}
		fmt.Fprintf(&text, "%-28s %s\n", s.Method, version)
		if s.Method == "tools/call" {
			break
		}
	}
	return text.String()
}

var took = regexp.MustCompile(`[0-9.]+ seconds`)

// spoken is what a model was told, as a golden file.
func spoken(b *yetttest.Broker, told standin.Result) string {
	text := took.ReplaceAllString(strings.ReplaceAll(told.Text, b.Home, "<broker home>"), "<time> seconds")
	return fmt.Sprintf("marked as an error: %v\n\n%s\n", told.Error, text)
}

// TestHosts_BrokerLocked: a host whose broker is locked tells its model so.
func TestHosts_BrokerLocked(t *testing.T) {
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			b := yetttest.New(t)
			b.Serve()
			told := h.start(t, yettMCP(b), listAccess).results(1)[0]
			wants(t, told, "locked", "yett unlock")
			golden(t, h.name+".locked.txt", spoken(b, told))
		})
	}
}

// TestHosts_Killed: the death of the process that the card names ends the
// session, whatever else of the host lives on.
func TestHosts_Killed(t *testing.T) {
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			b, _ := upstream(t)
			r := h.start(t, yettMCP(b), askAccess, getInvoices)
			seen := look(t, b, r, waitCard(t, b, r))
			must(t, syscall.Kill(seen.pids[seen.agent], syscall.SIGKILL))
			ended(t, b, seen.session, "agent_exited")
			var cards []yetttest.Card
			if b.Must("pending", "--json").JSON(t, &cards); len(cards) > 0 {
				t.Errorf("the card waits on: %+v", cards)
			}
		})
	}
}

// TestHosts_Denied: a person's no reaches the model.
func TestHosts_Denied(t *testing.T) {
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			b, u := upstream(t)
			r := h.start(t, yettMCP(b), askAccess, getInvoices)
			b.Must("deny", waitCard(t, b, r).ApprovalID)
			results := r.results(2)
			wants(t, results[0], "denied")
			wants(t, results[1], "capability_not_granted", "request_access")
			if got := u.Seen(); len(got) > 0 {
				t.Errorf("the API was asked for %v", got)
			}
		})
	}
}

// TestHosts_LongestWait: no host gives up a call that waits for a person as
// long as yett-mcp lets a call wait.
func TestHosts_LongestWait(t *testing.T) {
	longest := askAccess
	longest.Arguments = map[string]any{"capabilities": []string{"http:demo.read"}, "purpose": "wait", "wait_ms": 50_000}
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			b, _ := upstream(t)
			begun := time.Now()
			told := h.start(t, yettMCP(b), longest).results(1)[0]
			if waited := time.Since(begun); waited < 50*time.Second {
				t.Errorf("the call came back after %v", waited)
			}
			if !strings.Contains(told.Text, "pending: ") || told.Error {
				t.Errorf("the model was told %+v", told)
			}
		})
	}
}

// wants looks for what a person needs in what a model was told.
func wants(t *testing.T, told standin.Result, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(told.Text, text) {
			t.Errorf("the model was not told %q: %+v", text, told)
		}
	}
}

// TestHosts_LauncherKilled: Gemini CLI is a launcher and the agent. The death
// of the launcher alone ends nothing: the agent lives on, and so does its
// session, until a person ends it.
func TestHosts_LauncherKilled(t *testing.T) {
	b, _ := upstream(t)
	gemini := all[slices.IndexFunc(all, func(h host) bool { return h.name == "gemini-cli" })]
	r := gemini.start(t, yettMCP(b), askAccess, getInvoices)
	card := waitCard(t, b, r)
	seen := look(t, b, r, card)
	if len(seen.pids) != 3 {
		t.Fatalf("the processes are %v", seen.chain)
	}
	agent, err := os.FindProcess(seen.pids[seen.agent])
	must(t, err)
	t.Cleanup(func() { agent.Kill() })
	must(t, syscall.Kill(seen.pids[0], syscall.SIGKILL))
	<-r.done
	b.Must("approve", card.ApprovalID, "--for", "10m", "--digest", card.CardDigest)
	if s := session(t, b); s.State != "active" {
		t.Errorf("the session is %s %s", s.State, s.EndReason)
	}
	b.Must("revoke", seen.session)
	ended(t, b, seen.session, "revoked")
}
