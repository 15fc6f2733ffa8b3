package yetttest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
)

// hostile is what a requester would write to forge a prompt: characters that
// reorder, hide, erase, pad and imitate. It is valid UTF-8 and has no slash.
const hostile = "x\u202Egpj\u2066\u200B\uFEFF\u00AD\u2028\u2029\u0085\U000E0100\uFE0F\u061C\u3164\u2800\uE000\uFFFF" +
	"\x1b[2K\x1b[1A\x1b]0;t\x07\r\n  program   good\nESTABLISHED BY THE SYSTEM\n  NOTE      approved\n── FALSE TAG ──\n" +
	"Host: api.example.com\u3000\u3000\u3000Z\u0351\u036B\u0301\u20DDאב 5) גד      ”“\\u{41}\t\x7f"

// hostileBytes is that for fields that take any bytes but zero.
const hostileBytes = hostile + "\xff\xc0\x80\xed\xa0\x80\x9b2J"

// TestP04_NoAgentTextSteersATerminal: a hostile agent writes into every field
// that it can fill; then every command that prints is run, with and without
// proof, as text and as JSON, and every byte of it is looked at.
func TestP04_NoAgentTextSteersATerminal(t *testing.T) {
	up := StartUpstreamFunc(t, hostileUpstream)
	b := Start(t, up.Access()+hostileSSH, "demo", canary)
	dir, err := os.MkdirTemp("", "hostile")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	place := filepath.Join(dir, strings.ReplaceAll(hostileBytes, "/", "")[:200])
	must(t, os.Mkdir(place, 0o755))

	// The program's own name, its directory, its arguments, and all of hello.
	client := cardAgent(agentCopy(t, place, "a"+hostileBytes[:120]), "hostile", b.Home, hostileBytes)
	client.Dir = place
	must(t, client.Start())
	t.Cleanup(func() { client.Process.Kill(); client.Wait() })
	card := b.WaitCard()
	b.Approve(card, "--for", "1h")

	// A script with such a name, the host's own words, purpose and arguments.
	script := filepath.Join(place, "s"+hostileBytes[:100])
	must(t, os.WriteFile(script, []byte("#!/bin/sh\n\"$1\" --home \"$2\"\nexit $?\n"), 0o755))
	h := b.host(cardProgram(script, Bin("yett-mcp"), b.Home, hostileBytes), nil)
	h.start()
	info, err := json.Marshal(map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": hostile, "version": hostile}})
	must(t, err)
	h.send(request("init", "initialize", string(info)))
	h.await(`"init"`)
	h.send(initialized)
	text, err := json.Marshal(hostile)
	must(t, err)
	asked := h.call("request_access", fmt.Sprintf(`{"capabilities":["http:demo.each","http:demo.read","ssh:web1.each"],"purpose":%s,"wait_ms":0}`, text))
	b.ApproveTag(asked.session(t).Pending.ApprovalID, asked.tag(t))
	h.call("request_access", `{"capabilities":["http:demo.each"],"wait_ms":30000}`).wants(t, "granted: ")
	for _, arguments := range []string{
		`{"capability":%[1]s,"method":"GET","path":"/v1/x","wait_ms":0}`,
		`{"capability":"http:demo.read","method":%[1]s,"path":"/v1/x","wait_ms":0}`,
		`{"capability":"http:demo.read","method":"GET","path":%[1]s,"wait_ms":0}`,
		`{"capability":"http:demo.read","method":"GET","path":"/v1/x","query":{%[1]s:%[1]s},"wait_ms":20000}`,
		`{"capability":"http:demo.read","method":"GET","path":"/v1/x","headers":{"X-A":%[1]s},"wait_ms":0}`,
		`{"capability":"http:demo.read","method":"GET","path":"/v1/x","headers":{%[1]s:"a"},"wait_ms":0}`,
		`{"capability":"http:demo.each","method":"POST","path":"/each/x","body":%[1]s,"idempotency_key":%[1]s,"wait_ms":0}`,
		`{"capability":"http:demo.each","method":"POST","path":"/each/y","headers":{"X-A":"` + "אב 5) גד" + `"},"wait_ms":0}`,
	} {
		h.call("http_request", strings.ReplaceAll(arguments, "%[1]s", string(text)))
	}
	for _, arguments := range []string{
		`{"capability":"ssh:web1.each","command":%[1]s,"wait_ms":0}`,
		`{"capability":"ssh:web1.each","argv":["true",%[1]s],"stdin":%[1]s,"wait_ms":0}`,
		`{"capability":"ssh:web1.each","command":"true","stdin":%[1]s,"wait_ms":0}`,
	} {
		h.call("ssh_run", strings.ReplaceAll(arguments, "%[1]s", string(text)))
	}
	h.call("get_operation", fmt.Sprintf(`{"operation_id":%s}`, text))
	asked = h.call("request_access", fmt.Sprintf(`{"capabilities":["http:demo.write"],"purpose":%s,"wait_ms":0}`, text)) // a card that waits, too
	waiting := asked.session(t).Pending.ApprovalID

	printed := map[string]string{"the broker's log": b.log.String(), "yett-mcp's standard error": h.stderr.String()}
	for _, command := range [][]string{{"pending"}, {"sessions"}, {"activity"}, {"status"}, {"secret", "list"}, {"access", "list"}, {"audit", "verify"},
		{"audit", "verify", "--rows"}, {"version"}, {"approve", waiting}, {"deny", "a_0"}, {"revoke", "s_0"}, {"doctor"}, {"review"}} {
		for _, way := range []string{"", "--json"} {
			args := append([]string{}, command...)
			if way != "" {
				args = append(args, way)
			}
			for _, run := range []func(...string) Result{b.Run, b.RunPlain} {
				r := run(args...)
				printed["yett "+strings.Join(args, " ")] += r.Stdout + r.Stderr
			}
		}
	}
	printed["yett approve on a terminal"] = b.onTerminal(t, waiting)
	cards := len(b.Pending())
	if cards < 3 {
		t.Errorf("only %d cards wait", cards)
	}
	for where, out := range printed {
		if strings.Contains(where, "terminal") {
			out = strings.ReplaceAll(out, "\r\n", "\n")
		}
		if safe := approval.Printable(out); safe != out {
			at := 0
			for at < len(out) && at < len(safe) && out[at] == safe[at] {
				at++
			}
			t.Errorf("%s prints %q", where, out[max(0, at-60):min(len(out), at+40)])
		}
		for line := range strings.Lines(out) {
			for _, label := range []string{"Host:", "── FALSE", "  program   good", "  NOTE      approved"} {
				if strings.HasPrefix(line, label) {
					t.Errorf("%s: text of the agent begins a line: %s", where, line)
				}
			}
		}
	}
	shown := printed["yett pending"]
	if full := min(cards, 5); strings.Count(shown, "\nESTABLISHED BY THE SYSTEM\n") != full || strings.Count(shown, "gpj") < full {
		t.Errorf("%d cards wait, and the list is\n%.6000s", cards, shown)
	}
	for _, command := range []string{"yett activity --json", "yett sessions --json", "yett pending --json"} {
		if !strings.Contains(printed[command], "gpj") {
			t.Errorf("%s does not show what the agent wrote, so it proves nothing", command)
		}
	}
}

const hostileSSH = `
[credential.deploy]
kind = "ssh-key"

[host.web1]
address = "127.0.0.1:9"
user = "deploy"
key = "deploy"
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8mZCyfBvDgVVOMfyqcBBIDwVdWiqN0ZmgLbNYAjBmF"]

[capability."ssh:web1.each"]
host = "web1"
commands = ["true", "true *"]
confirm = "each"
`

// onTerminal shows a card as yett approve does on a terminal, and says no.
func (b *Broker) onTerminal(t *testing.T, approvalID string) string {
	t.Helper()
	mine, its, err := terminal()
	must(t, err)
	defer mine.Close()
	c := exec.Command(Bin("yett"), "approve", approvalID, "--home", b.Home)
	c.Env = b.Env
	c.Stdin, c.Stdout, c.Stderr = its, its, its
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	must(t, c.Start())
	its.Close()
	var out strings.Builder
	answer := func(question, text string) {
		buf := make([]byte, 4096)
		mine.SetReadDeadline(time.Now().Add(Patience))
		for seen := out.Len(); !strings.Contains(out.String()[seen:], question); {
			n, err := mine.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				t.Fatalf("waiting for %q: %v\n%s", question, err, out.String())
			}
		}
		time.Sleep(50 * time.Millisecond) // what was typed before the question counts for nothing
		mine.WriteString(text + "\n")
	}
	answer("passphrase", Passphrase)
	answer("Type yes", "no")
	c.Wait()
	return out.String()
}
