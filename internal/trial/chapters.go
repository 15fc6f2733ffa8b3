package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

const (
	readInvoices  = "http:demo.read"
	writeInvoices = "http:demo.write"
	readStatus    = "ssh:demo.status"
)

const tryAccess = `[credential.api-token]
kind   = "bearer"
origin = %q

[capability.%q]
credential = "api-token"
methods    = ["GET"]
paths      = ["/v1/invoices"]

[capability.%q]
credential = "api-token"
methods    = ["POST"]
paths      = ["/v1/invoices"]

[credential.ssh-key]
kind = "ssh-key"

[host.demo]
address   = %q
user      = %q
key       = "ssh-key"
host_keys = [%q]

[capability.%q]
host     = "demo"
commands = [%q]
`

// openYett makes a vault, starts the broker and gives it the credentials.
func (t *trial) openYett(ctx context.Context) error {
	t.step("Yett gets the credentials; the agent will not")
	if err := t.makeVault(ctx); err != nil {
		return err
	}
	var err error
	if t.broker, err = t.start("the broker", false, nil, "serve", "--home", t.home); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, tryCommand)
	defer cancel()
	if err := t.broker.waitLine(ready, "serving, locked"); err != nil {
		return err
	}
	if _, _, err := t.yett(ctx, command{args: []string{"unlock"}, proof: true}); err != nil {
		return err
	}
	t.say("yett init, yett serve (process %d), yett unlock", t.broker.cmd.Process.Pid)

	file := filepath.Join(t.dir, "access.toml")
	text := fmt.Sprintf(tryAccess, t.api.Origin, readInvoices, writeInvoices, t.host.Address, t.host.User, t.host.HostKey, readStatus, t.command)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the access file: %w", err)
	}
	if _, _, err := t.yett(ctx, command{args: []string{"apply", file}, proof: true}); err != nil {
		return err
	}
	t.say("yett apply access.toml: agents may ask for %s, %s, %s", readInvoices, writeInvoices, readStatus)
	for _, s := range []struct {
		name  string
		value []byte
	}{{"api-token", t.token}, {"ssh-key", t.host.ClientKey}} {
		if _, _, err := t.yett(ctx, command{args: []string{"secret", "set", s.name}, stdin: s.value, proof: true}); err != nil {
			return err
		}
	}
	t.say("yett secret set api-token, yett secret set ssh-key")
	return nil
}

// makeVault runs yett init; the recovery code is planted too.
func (t *trial) makeVault(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer r.Close()
	_, _, err = t.yett(ctx, command{args: []string{"init", "--recovery-fd", "4"}, proof: true, pass: w})
	w.Close()
	if err != nil {
		return err
	}
	code, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("reading the recovery code: %w", err)
	}
	t.search.canaries.Plant("the recovery code", bytes.TrimSpace(code))
	return nil
}

// startAgent starts an agent, which starts yett-mcp as its MCP server.
func (t *trial) startAgent(ctx context.Context) error {
	t.step("An agent starts, with Yett as its MCP server")
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	t.agent, err = t.start("the agent", true, []*os.File{w}, "try-agent", "--home", t.home)
	w.Close()
	if err != nil {
		r.Close()
		return err
	}
	t.mirrored = make(chan struct{})
	go func() {
		defer close(t.mirrored)
		defer r.Close()
		io.Copy(&t.received, r)
	}()
	var hello agentReport
	if err := t.agent.ask(ctx, agentOrder{Do: "connect"}, &hello); err != nil {
		return err
	}
	if hello.Error != "" {
		return fmt.Errorf("the agent could not start yett-mcp: %s", hello.Error)
	}
	t.search.lookAtProcesses()
	t.say("agent: process %d; it started yett-mcp, process %d (MCP %s)", t.agent.cmd.Process.Pid, hello.PID, hello.Text)
	t.say("its tools: %s", strings.Join(hello.Tools, ", "))
	list, err := t.call(ctx, "list_access", nil)
	if err != nil {
		return err
	}
	for _, name := range []string{readInvoices, writeInvoices, readStatus} {
		if !strings.Contains(list.Text, name) {
			return fmt.Errorf("the agent does not see %s: %s", name, list.Text)
		}
	}
	early, err := t.call(ctx, "http_request", map[string]any{"capability": readInvoices, "method": "GET", "path": "/v1/invoices"})
	if err != nil {
		return err
	}
	t.say("it tries GET /v1/invoices without asking  →  %s", early.code())
	seen := len(t.api.Seen())
	t.check(claimNothingBefore, early.refusedBecause(wire.ReasonCapabilityNotGranted) && seen == 0,
		"its GET was refused (%s); the API had seen %s", early.code(), screen.HowMany(seen, "request"))
	return nil
}

// call has the agent call a tool.
func (t *trial) call(ctx context.Context, tool string, arguments map[string]any) (agentReport, error) {
	var r agentReport
	if err := t.agent.ask(ctx, agentOrder{Do: "call", Tool: tool, Arguments: arguments}, &r); err != nil {
		return r, err
	}
	if r.Error != "" {
		return r, fmt.Errorf("the agent's call of %s failed: %s", tool, r.Error)
	}
	t.search.lookAtProcesses()
	return r, nil
}

// decide has the agent ask, and a person decide.
func (t *trial) decide(ctx context.Context) error {
	t.step("The agent asks, and a person decides")
	wanted := map[string]any{"capabilities": []string{readInvoices, readStatus}, "wait_ms": 0,
		"purpose": "Look at the invoices and at how long the host has been up"}
	asked, err := t.call(ctx, "request_access", wanted)
	if err != nil {
		return err
	}
	t.say("request_access %s, %s  →  %s", readInvoices, readStatus, asked.code())
	card, err := t.waitingCard(ctx)
	if err != nil {
		return err
	}
	if err := t.checkCard(card); err != nil {
		return err
	}
	if t.yes {
		err = t.approveAlone(ctx, card)
	} else {
		err = t.askPerson(ctx, card)
	}
	if err != nil {
		return err
	}
	wanted["wait_ms"] = 10_000
	granted, err := t.call(ctx, "request_access", wanted)
	if err != nil {
		return err
	}
	if granted.IsError || !strings.HasPrefix(granted.Headline, "granted") {
		return fmt.Errorf("the card was approved but the agent was told: %s", granted.Headline)
	}
	t.say("the agent asks again  →  %s", granted.gist())
	return nil
}

// waitingCard returns the card that waits, read with the passphrase.
func (t *trial) waitingCard(ctx context.Context) (wire.Approval, error) {
	var waiting []wire.Approval
	out, _, err := t.yett(ctx, command{args: []string{"pending", "--json"}, proof: true})
	if err != nil {
		return wire.Approval{}, err
	}
	if err := json.Unmarshal([]byte(out), &waiting); err != nil {
		return wire.Approval{}, fmt.Errorf("reading yett pending: %w", err)
	}
	if len(waiting) != 1 {
		return wire.Approval{}, fmt.Errorf("%d cards wait, want one", len(waiting))
	}
	return waiting[0], nil
}

// checkCard compares what the card says with what is known to be true.
func (t *trial) checkCard(p wire.Approval) error {
	var c approval.Card
	if err := json.Unmarshal(p.Card, &c); err != nil {
		return fmt.Errorf("reading the card: %w", err)
	}
	want := t.agent.cmd.Process.Pid
	k, f := c.Verified.Agent.Kernel, c.Verified.Agent.Filesystem
	same := false
	if exe, err := os.Stat(k.ExePath); err == nil {
		if self, err := os.Stat(t.self); err == nil {
			same = os.SameFile(exe, self)
		}
	}
	t.check(claimCard, k.PID == want && same && f.SHA256 != "", "process %d, %s, SHA-256 %s…", k.PID, k.ExePath, f.SHA256[:min(16, len(f.SHA256))])
	return nil
}

func (t *trial) approveAlone(ctx context.Context, p wire.Approval) error {
	t.say("yett pending shows the card:\n\n")
	var text strings.Builder
	if _, err := screen.Card(&text, p); err != nil {
		return err
	}
	indent(t.out, "   │ ", text.String())
	if _, _, err := t.yett(ctx, command{args: []string{"approve", p.ApprovalID, "--digest", p.CardDigest, "--for", "10m"}, proof: true}); err != nil {
		return err
	}
	fmt.Fprintln(t.out)
	t.say("yett approve … --for 10m: the demo approved it with its passphrase (YES=1)")
	return nil
}

// askPerson runs yett approve on the terminal; typing errors are forgiven.
func (t *trial) askPerson(ctx context.Context, p wire.Approval) error {
	t.say("Now it is your turn. This is what you would run when an agent asks:\n\n")
	t.say("    yett approve %s --for 10m\n\n", p.ApprovalID)
	t.say("The passphrase of this scratch vault is:  %s\n\n", t.passphrase)
	for attempt := 1; ; attempt++ {
		code, err := t.onTerminal(ctx, "approve", p.ApprovalID, "--for", "10m")
		if err != nil || code == 0 {
			return err
		}
		if code != 3 || attempt == 3 {
			return errors.New("the card was not approved")
		}
		fmt.Fprintln(t.out)
		t.say("Not approved. Once more (Ctrl-C ends the demonstration):")
	}
}

// act has the agent do what it was allowed to.
func (t *trial) act(ctx context.Context) error {
	t.step("The agent acts, through Yett")
	got, err := t.call(ctx, "http_request", map[string]any{"capability": readInvoices, "method": "GET", "path": "/v1/invoices"})
	if err != nil {
		return err
	}
	t.say("GET /v1/invoices  →  %s", got.gist())
	t.quote(got.after("body"))
	seen, withToken := t.api.Seen(), 0
	for _, r := range seen {
		if r.Authorization == "Bearer "+string(t.token) {
			withToken++
		}
	}
	t.check(claimHTTP, !got.IsError && len(seen) == 1 && withToken == 1 && strings.Contains(got.Text, "inv-1001"),
		"GET /v1/invoices: %s; the API saw %s, %d with the token", got.gist(), screen.HowMany(len(seen), "request"), withToken)
	leaked := t.search.canaries.In([]byte(got.Text))
	replaced := strings.Contains(strings.ReplaceAll(got.Text, " ", ""), `"redacted":1`)
	echo := "Yett replaced the token in the API's answer, and told the agent so"
	if len(leaked) > 0 || !replaced {
		echo = fmt.Sprintf("the agent's result says of a replaced echo: %v; secrets in it: %d", replaced, len(leaked))
	}
	t.check(claimEcho, replaced && len(leaked) == 0, "%s", echo)

	ran, err := t.call(ctx, "ssh_run", map[string]any{"capability": readStatus, "command": t.command})
	if err != nil {
		return err
	}
	t.say("ssh demo %s  →  %s", t.command, ran.gist())
	t.quote(ran.after("stdout"))
	server := "OpenSSH"
	if t.host.Builtin {
		server = "the SSH server inside yett"
	}
	t.check(claimSSH, !ran.IsError && strings.HasPrefix(ran.Headline, "completed: exit status 0") && t.host.Accepted() == t.probes+1,
		"%s: %s, from %s; %s", t.command, ran.gist(), server, screen.HowMany(t.host.Accepted()-t.probes, "connection"))
	return nil
}

// quote shows the beginning of a body.
func (t *trial) quote(body string) {
	const most = 240
	body, _, _ = strings.Cut(body, "\nstderr: empty")
	if body = strings.TrimSpace(body); len(body) > most {
		body = strings.ToValidUTF8(body[:most], "") + " …"
	}
	for line := range strings.Lines(body) {
		indent(t.out, "     > ", approval.Escape(strings.TrimRight(line, "\n"), 2*most))
	}
}

// sessionOfAgent finds the agent's live session, as the person sees it.
func (t *trial) sessionOfAgent(ctx context.Context) (string, error) {
	out, _, err := t.yett(ctx, command{args: []string{"sessions", "--json"}, proof: true})
	if err != nil {
		return "", err
	}
	var all []wire.Session
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return "", fmt.Errorf("reading yett sessions: %w", err)
	}
	i := slices.IndexFunc(all, func(s wire.Session) bool {
		return s.State == "active" && s.Caller.Subject().Kernel.PID == t.agent.cmd.Process.Pid
	})
	if i < 0 {
		return "", fmt.Errorf("the agent's session is not among %d", len(all))
	}
	return all[i].SessionID, nil
}
