package yetttest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

const canary = "canary-7f3b91c4d2e8"

func TestMainJob(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Open()
	c.OpenSession("http:demo.read")
	if c.Session.State != "pending" || c.Session.Pending == nil {
		t.Fatalf("session is not pending: %+v", c.Session)
	}
	if r := c.Act("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); r.Code() != wire.CodeSessionPending {
		t.Fatalf("before the decision: %q", r.Code())
	}
	b.Approve(b.WaitCard(), "--for", "1h")
	op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/invoices", "query": map[string]any{"a": "1"}})
	if op.State != "completed" {
		t.Fatalf("%+v", op)
	}
	var res wire.HTTPResult
	json.Unmarshal(op.Result, &res)
	var body wire.OperationBodyResult
	c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": res.BodyRef, "offset": 0, "limit": 1000}), &body)
	if res.Status != 200 || !strings.Contains(string(body.BytesBase64), "/v1/invoices") || !body.EOF {
		t.Fatalf("%+v %s", res, body.BytesBase64)
	}
	if got := up.Seen(); len(got) != 1 || got[0] != "GET /v1/invoices?a=1" {
		t.Fatalf("upstream saw %v", got)
	}
	if op := c.MustAct("http:demo.write", map[string]any{"method": "POST", "path": "/v1/invoices"}); op.State != "denied" || op.Reason.Code != wire.ReasonCapabilityNotGranted {
		t.Fatalf("%+v", op)
	}
	if op := c.MustAct("http:demo.read", map[string]any{"method": "POST", "path": "/v1/invoices"}); op.State != "denied" || op.Reason.Code != wire.ReasonOutsideCapability {
		t.Fatalf("%+v", op)
	}
	if got := len(up.Seen()); got != 1 {
		t.Fatalf("%d requests arrived", got)
	}
	if bytes.Contains(c.Got.Bytes(), []byte(canary)) || bytes.Contains(b.Printed(), []byte(canary)) {
		t.Fatal("the secret got out")
	}
	kinds := ""
	for _, r := range b.Activity() {
		kinds += r.Kind + " "
	}
	t.Log(kinds)
	if r := b.Run("audit", "verify", "--json"); r.Code != 0 {
		t.Fatalf("audit: %s %s", r.Stdout, r.Stderr)
	}
}
