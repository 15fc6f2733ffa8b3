package yetttest

import (
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// wildSSH has a capability for any command; nothing listens at its address.
const wildSSH = `
[credential.deploy]
kind = "ssh-key"

[host.web1]
address = "127.0.0.1:9"
user = "deploy"
key = "deploy"
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8mZCyfBvDgVVOMfyqcBBIDwVdWiqN0ZmgLbNYAjBmF"]

[capability."ssh:web1.any"]
host = "web1"
commands = ["sh -s", "echo *", "* *"]
confirm = "each"
`

// TestP04_TheHarmfulPartIsOnTheCard: padding of an agent pushes nothing off the
// card that a person reads, and what no card can show whole is not asked.
func TestP04_TheHarmfulPartIsOnTheCard(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access()+wildSSH, "demo", canary)
	c := b.Granted("http:demo.each", "ssh:web1.any")
	const evil = "delete_everything"
	post := func(body string) map[string]any {
		return map[string]any{"method": "POST", "path": "/each/x", "body": body}
	}
	run := func(command, stdin string) map[string]any { return map[string]any{"command": command, "stdin": stdin} }
	for name, a := range map[string]struct {
		capability string
		action     map[string]any
		warned     bool
	}{
		"spaces in a body":   {"http:demo.each", post(`{"title":"ok",` + strings.Repeat(" ", 20_000) + `"` + evil + `":"EVIL"}`), false},
		"spaces in stdin":    {"ssh:web1.any", run("sh -s", "uptime\n#"+strings.Repeat(" ", 16_380)+"\n"+evil), false},
		"a long command":     {"ssh:web1.any", run("echo "+strings.Repeat("a", 60_000)+evil, ""), false},
		"a long body":        {"http:demo.each", post(strings.Repeat("a", 200_000) + evil), true},
		"control characters": {"http:demo.each", post(strings.Repeat("\x01", 65_536-len(evil)) + evil), true},
	} {
		r := c.Call(wire.MethodActionRequest, c.Next(map[string]any{"capability": a.capability, "action": a.action, "wait_ms": 0}))
		if r.Error != nil {
			t.Fatalf("%s: %+v", name, r.Error)
		}
		card := b.WaitCard()
		text := b.Must("pending", card.ApprovalID).Stdout
		unbroken := strings.Join(strings.Fields(strings.ReplaceAll(text, "┆", "")), "")
		if !strings.Contains(unbroken, evil) {
			t.Errorf("%s: the harmful part is missing: …%s", name, text[max(0, len(text)-1500):])
		}
		_, shown, _ := strings.Cut(text, "THE ACTION") // what the agent claims of itself may be cut
		shown, _, found := strings.Cut(shown, "ESTABLISHED BY THE SYSTEM")
		if !found || strings.Contains(shown, `\+{`) || strings.Contains(text, "NOT SHOWN") != a.warned {
			t.Errorf("%s: cut, or warned wrongly: %.400s", name, text)
		}
		b.Must("deny", card.ApprovalID)
	}
	long := post("x")
	long["headers"] = map[string]string{"X-A": strings.Repeat(`\`, 20_000)} // four bytes each on a card
	var op Operation
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.each", "action": long, "wait_ms": 0}), &op)
	if op.State != "denied" || op.Reason == nil || !strings.Contains(op.Reason.Message, "too long") || len(b.Pending()) != 0 {
		t.Errorf("what is too long for a card: %s, %+v, %d cards", op.State, op.Reason, len(b.Pending()))
	}
}
