package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

// attack tries what must not work.
func (t *trial) attack(ctx context.Context) error {
	t.step("What must not work")
	post, err := t.call(ctx, "http_request", map[string]any{"capability": writeInvoices, "method": "POST", "path": "/v1/invoices",
		"headers": map[string]string{"Content-Type": "application/json"}, "body": `{"total":"1.00"}`})
	if err != nil {
		return err
	}
	t.say("the agent tries POST /v1/invoices, which was not approved  →  %s", post.code())
	t.check(claimNotGranted, post.refusedBecause(wire.ReasonCapabilityNotGranted) && len(t.posts()) == 0,
		"POST with %s: %s; the API saw %s", writeInvoices, post.code(), screen.HowMany(len(t.posts()), "POST"))

	session, err := t.sessionOfAgent(ctx)
	if err != nil {
		return err
	}
	stranger, err := t.start("the stranger", true, nil, "try-stranger", "--home", t.home)
	if err != nil {
		return err
	}
	defer t.end(stranger)
	t.say("another process (%d) of the same account tries the agent's GET:", stranger.cmd.Process.Pid)
	before := len(t.api.Seen())
	var r strangerReport
	order := strangerOrder{Capability: readInvoices, Method: "GET", Path: "/v1/invoices", SessionID: session}
	if err := stranger.ask(ctx, order, &r); err != nil {
		return err
	}
	if r.Error != "" {
		return fmt.Errorf("the stranger could not try: %s", r.Error)
	}
	t.search.lookAtProcesses()
	reached := len(t.api.Seen()) - before
	t.say("  in a session of its own that asks for it  →  %s (a new card would need you)", r.Waiting)
	t.say("  in a session that was granted nothing     →  %s", r.Ungranted)
	t.say("  with the session id of the agent          →  %s", r.Stolen)
	t.check(claimOtherProcess, r.Opened == "pending" && r.Waiting == wire.CodeSessionPending && r.Ungranted == wire.ReasonCapabilityNotGranted && reached == 0,
		"its session is %s; its GET: %s, %s; the API saw none of it", r.Opened, r.Waiting, r.Ungranted)
	t.check(claimStolenID, r.Stolen == wire.CodeWrongChannel && reached == 0, "its GET with %s: %s", session, r.Stolen)
	return nil
}

// posts returns the POSTs that reached the API.
func (t *trial) posts() []string {
	var all []string
	for _, r := range t.api.Seen() {
		if r.Method == "POST" {
			all = append(all, r.Path)
		}
	}
	return all
}

// readRecord shows what the broker wrote down, stops it, and has the record
// verified.
func (t *trial) readRecord(ctx context.Context) error {
	t.step("What was written down")
	out, _, err := t.yett(ctx, command{args: []string{"activity", "--json"}, proof: true})
	if err != nil {
		return err
	}
	var rows []ledger.Row
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var r ledger.Row
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("reading yett activity: %w", err)
		}
		rows = append(rows, r)
	}
	t.say("yett activity has %d rows; those about actions:", len(rows))
	what := map[string]string{} // the action of each operation; its outcome does not repeat it
	order := map[string][]string{}
	for _, r := range rows {
		if r.OperationID == "" && r.Kind != "refused" {
			continue
		}
		if action := rowAction(r); action != "" {
			what[r.OperationID] = action
		}
		gist := strings.TrimSpace(what[r.OperationID] + "  " + rowEnd(r))
		t.say("%5d  %s  %-8s %s", r.N, r.At.Local().Format("15:04:05.000"), r.Kind, gist)
		order[r.OperationID] = append(order[r.OperationID], r.Kind+" "+gist)
	}
	get, run, whole := "GET /v1/invoices", "ssh "+t.command, 0
	for _, o := range order {
		if slices.Equal(o, []string{"intent " + get, "outcome " + get + "  200"}) ||
			slices.Equal(o, []string{"intent " + run, "outcome " + run + "  exit status 0"}) {
			whole++
		}
	}
	t.check(claimRecorded, whole == 2, "%d of 2 actions have an intent and then an outcome", whole)

	if err := t.search.lookAtFiles(t.dir); err != nil { // while it runs, with the database's journal
		return err
	}
	if err := t.stopAll(ctx); err != nil {
		return err
	}
	verdict, code, err := t.yett(ctx, command{args: []string{"audit", "verify"}, proof: true, fails: true})
	if err != nil {
		return err
	}
	t.say("yett stop; yett audit verify: %s", strings.TrimSpace(verdict))
	t.check(claimVerified, code == 0, "exit %d: %s", code, strings.TrimSpace(verdict))
	return nil
}

// rowAction is the action that a row is about, where the row says so.
func rowAction(r ledger.Row) string {
	var request struct {
		Action action.Request `json:"action"`
	}
	if json.Unmarshal(r.Request, &request) != nil {
		return ""
	}
	switch a := request.Action; {
	case a.HTTP != nil:
		return approval.Escape(a.HTTP.Method+" "+a.HTTP.Path, 120)
	case a.SSH != nil:
		return approval.Escape("ssh "+a.SSH.Command, 120)
	}
	return ""
}

// rowEnd is what came of it.
func rowEnd(r ledger.Row) string {
	var outcome struct {
		Code   string       `json:"code"`
		Reason *wire.Reason `json:"reason"`
		Result struct {
			Status int `json:"status"`
			Exit   *struct {
				Status int `json:"status"`
			} `json:"exit"`
		} `json:"result"`
	}
	if json.Unmarshal(r.Outcome, &outcome) != nil {
		return ""
	}
	switch {
	case outcome.Reason != nil:
		return outcome.Reason.Code
	case outcome.Result.Exit != nil:
		return fmt.Sprintf("exit status %d", outcome.Result.Exit.Status)
	case outcome.Result.Status != 0:
		return fmt.Sprint(outcome.Result.Status)
	}
	return outcome.Code
}

// stopAll ends the agent and then the broker, as their users would, and counts
// what arrived outside.
func (t *trial) stopAll(ctx context.Context) error {
	t.search.lookAtProcesses()
	t.end(t.agent)
	select {
	case <-t.mirrored:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, _, err := t.yett(ctx, command{args: []string{"stop"}}); err != nil {
		return err
	}
	select { // a signal in its last moment would look like a crash
	case <-t.broker.done:
	case <-time.After(tryEnding):
	}
	t.end(t.broker)
	if code := t.broker.cmd.ProcessState.ExitCode(); code != 0 {
		return t.broker.broke(fmt.Errorf("exit %d", code))
	}
	requests, logins := t.api.Seen(), t.host.Accepted()-t.probes
	t.check(claimOutside, len(requests) == 1 && requests[0].Method == "GET" && logins == 1,
		"the API saw %s, the host %s", screen.HowMany(len(requests), "request"), screen.HowMany(logins, "connection"))
	return nil
}

// findSecrets searches everything that is left to search, and sums up. That
// the search can find something is shown on what the API received.
func (t *trial) findSecrets(context.Context) error {
	t.step("Looking for the secrets")
	if err := t.search.lookAtFiles(t.dir); err != nil {
		return err
	}
	s := t.search
	received := t.received.Bytes()
	s.look("what the agent received", received)
	s.look("the log of the SSH server", []byte(t.host.Log()))
	control := len(s.canaries.In([]byte(t.api.Seen()[0].Authorization))) > 0
	vault := slices.ContainsFunc(sortedNames(s.files), func(name string) bool { return strings.Contains(name, "vault") }) && s.files["home/ledger.db"]
	whole := control && vault && len(received) > 1000 && bytes.Contains(received, []byte("inv-1001")) && len(s.processes) > 3
	found := fmt.Sprintf("not in the %d bytes that the agent received, the %d bytes that programs printed, %d files (vault, ledger, logs), or arguments and environment of %d processes",
		len(received), s.printed, len(s.files), len(s.processes))
	if n := len(s.shut); n > 0 && os.Geteuid() != 0 {
		found += fmt.Sprintf(" (of %d the kernel shows no environment to their own account)", n)
	}
	if len(s.leaks) > 0 {
		found = "FOUND: " + strings.Join(s.leaks, "; ")
	} else if !whole {
		found = "the search did not see all that it should have"
	}
	t.check(claimSecrets, whole && len(s.leaks) == 0, "%s", found)
	t.say("token, SSH key, passphrase and recovery code; plain, in base64 and in hex: %s", map[bool]string{true: "found nowhere", false: "FOUND"}[len(s.leaks) == 0])
	return nil
}

func sortedNames(set map[string]bool) []string {
	var names []string
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
