package broker

import (
	"context"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/wire"
)

// A stored key that cannot be used is not tried, and the person learns which
// one to replace.
func TestAnUnusableKeyIsNamed(t *testing.T) {
	policy, err := access.Parse([]byte(`
[credential.deploy-key]
kind = "ssh-key"
[host.web]
address = "127.0.0.1:22"
user = "deploy"
key = "deploy-key"
host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPSmgTBdIsqOVmcCIBfJc51PuuqKhZbYwmBbcUDPYoI"]
[capability."ssh:web"]
host = "web"
commands = ["uptime"]
`))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := policy.Capability("ssh:web")
	op := &operation{plan: access.Decision{Capability: c}, request: action.Request{Capability: c.Name, SSH: &action.SSH{Command: "uptime"}}}
	out := (&Broker{}).executeSSH(&sending{ctx: context.Background()}, &unlocked{policy: policy}, op, []byte("hunter2-not-a-key"))
	r, ok := out.result.(wire.NotSent)
	if !ok || r.Sent || r.NextStep != "The person must run: yett secret rotate deploy-key" || strings.Contains(r.Error, "hunter2") {
		t.Errorf("%+v", out)
	}
}
