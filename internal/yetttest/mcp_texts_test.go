package yetttest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// drops is an upstream that takes a request for /v1/drop and never answers.
func drops(t testing.TB) *Upstream {
	return StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/drop" {
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				c.Close()
			}
			return
		}
		w.Write([]byte("fine"))
	})
}

// TestM04_TheAgentLearnsOfTheCard: what asks for a repetition is named, with
// its two words; a yes lets the same call run once, and a no is said.
func TestM04_TheAgentLearnsOfTheCard(t *testing.T) {
	up := drops(t)
	b := Start(t, up.Access(), "demo", canary)
	h := b.startShim().ready()
	h.grant("http:demo.write")
	const post = `{"capability":"http:demo.write","method":"POST","path":"/v1/drop"}`
	first := h.call("http_request", post).refused(t, "indeterminate", "may or may not", "Do not repeat").operation(t)

	asked := h.call("http_request", post).refused(t, "outcome_unknown", first.OperationID, "Nothing was executed now",
		"make the same call again: it then runs once")
	card := b.WaitCard()
	asked.wants(t, "yett approve "+card.ApprovalID)
	b.ApproveTag(card.ApprovalID, asked.tag(t))
	if seen := up.Seen(); len(seen) != 1 {
		t.Fatalf("the decision ran the action by itself: %v", seen)
	}
	h.call("http_request", post).refused(t, "indeterminate")
	if seen := up.Seen(); len(seen) != 2 {
		t.Fatalf("the approved repetition: the upstream saw %v", seen)
	}

	h.call("http_request", post).refused(t, "outcome_unknown", "make the same call again")
	if r := b.RunPlain("deny", b.WaitCard().ApprovalID); r.Code != 0 {
		t.Fatalf("yett deny: %+v", r)
	}
	no := h.call("http_request", post).refused(t, "outcome_unknown", "A person said no to repeating it.")
	if strings.Contains(no.text, "same call again") || len(b.Pending()) != 0 {
		t.Errorf("a no is answered as if it could be approved:\n%s", no.text)
	}
	if seen := up.Seen(); len(seen) != 2 {
		t.Errorf("the upstream saw %v", seen)
	}
}

// TestSafeMethodsMayBeRepeated: what the agent is told is what the broker does.
func TestSafeMethodsMayBeRepeated(t *testing.T) {
	up := drops(t)
	b := Start(t, up.Access(), "demo", canary)
	h := b.startShim().ready()
	h.grant("http:demo.read")
	const get = `{"capability":"http:demo.read","method":"GET","path":"/v1/drop"}`
	for range 2 {
		lost := h.call("http_request", get).refused(t, "indeterminate", "repeating this action is allowed")
		again := h.call("get_operation", fmt.Sprintf(`{"operation_id":%q}`, lost.operation(t).OperationID)).refused(t, "indeterminate", "repeating this action is allowed")
		for _, s := range []said{lost, again} {
			if strings.Contains(s.text, "Do not repeat") {
				t.Errorf("a GET must not be repeated:\n%s", s.text)
			}
		}
	}
	if seen := up.Seen(); len(seen) != 2 {
		t.Errorf("the upstream saw %v", seen)
	}
	done := h.call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`).operation(t)
	b.Stop() // in order: the outcome is on disk
	b.Serve()
	b.Unlock()
	h.call("list_access", "{}")
	h.call("get_operation", fmt.Sprintf(`{"operation_id":%q}`, done.OperationID)).wants(t, "completed: operation "+done.OperationID, "kept no longer")
}

// TestRefusalsSayWhatHelps: each next step is one that can change the answer.
func TestRefusalsSayWhatHelps(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access()+`
[credential.empty]
kind = "bearer"
origin = "http://127.0.0.1:1"

[capability."http:empty"]
credential = "empty"
methods = ["GET"]
paths = ["/v1/**"]

[credential.key]
kind = "ssh-key"

[host.web]
address = "127.0.0.1:1"
user = "deploy"
key = "key"
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPSmgTBdIsqOVmcCIBfJc51PuuqKhZbYwmBbcUDPYoI"]

[capability."ssh:web"]
host = "web"
commands = ["uptime"]
`, "demo", canary)
	h := b.startShim().ready()
	h.grant("http:demo.read", "http:demo.write", "http:empty", "ssh:web")
	const (
		other  = "The access file cannot allow it"
		widen  = "widen the access file"
		set    = "The person must run: yett secret set "
		kind   = "list_access shows the capability's kind"
		lists  = "See what there is: list_access"
		repair = "Correct the arguments"
	)
	get := func(rest string) string { return `{"capability":"http:demo.read","method":"GET","path":` + rest + `}` }
	for _, c := range []struct{ tool, arguments, code, step string }{
		{"http_request", get(`"/v1/x?a=1"`), "action_outside_capability", other},
		{"http_request", get(`"/v1/../x"`), "action_outside_capability", other},
		{"http_request", get(`"/v1/x","headers":{"Authorization":"x"}`), "action_outside_capability", other},
		{"http_request", get(`"/v1/x","query":{"_method":"PUT"}`), "action_outside_capability", other},
		{"http_request", get(`"/v2/x"`), "action_outside_capability", widen},
		{"http_request", `{"capability":"http:demo.read","method":"POST","path":"/v1/x"}`, "action_outside_capability", widen},
		{"ssh_run", `{"capability":"ssh:web","command":"reboot"}`, "action_outside_capability", widen},
		{"http_request", `{"capability":"http:none","method":"GET","path":"/v1/x"}`, "capability_unknown", lists},
		{"request_access", `{"capabilities":["http:none"]}`, "bad_request", lists},
		{"http_request", `{"capability":"ssh:web","method":"GET","path":"/v1/x"}`, "bad_request", kind},
		{"ssh_run", `{"capability":"http:demo.read","command":"uptime"}`, "bad_request", kind},
		{"ssh_run", `{"capability":"ssh:web","command":"uptime","timeout_ms":600001}`, "bad_request", "Correct the action"},
		{"read_result", `{"body_ref":"activity:99999"}`, "bad_request", "of a result of this session"},
		{"get_operation", `{"operation_id":"op_none"}`, "bad_request", "operation_id that an action's result named"},
		{"list_access", `{"all":true}`, "bad_request", repair},
		{"http_request", get(`"/v1/x","headers":{"A":1}`), "bad_request", repair},
		{"http_request", `{"capability":"http:empty","method":"GET","path":"/v1/x"}`, "not_sent", set + "empty"},
		{"ssh_run", `{"capability":"ssh:web","command":"uptime"}`, "not_sent", set + "key"},
	} {
		r := h.call(c.tool, c.arguments).refused(t, c.code)
		_, step, _ := strings.Cut(r.text, "\nNext step: ")
		if !strings.Contains(step, c.step) || strings.Contains(step, "docs/") {
			t.Errorf("%s %s: the next step is not %q:\n%s", c.tool, c.arguments, c.step, r.text)
		}
	}
	if seen := up.Seen(); len(seen) != 0 {
		t.Errorf("the upstream saw %v", seen)
	}
	b.SetSecret("empty", canary)
	r := h.call("http_request", `{"capability":"http:empty","method":"GET","path":"/v1/x"}`).refused(t, "not_sent", "connection refused", "Try again later")
	if strings.Contains(r.text, "yett secret") {
		t.Errorf("a closed port is blamed on the secret:\n%s", r.text)
	}
	if r := b.RunPlain("lock"); r.Code != 0 {
		t.Fatalf("yett lock: %+v", r)
	}
	h.call("list_access", "{}").refused(t, "session_ended", "(locked)", "Next step: Unlock it: yett unlock")
}
