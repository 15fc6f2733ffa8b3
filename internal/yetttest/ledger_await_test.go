package yetttest

import (
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// TestServeAwaitsABrokerThatEnds: a broker that is started while another one
// ends, which waits for what has left, takes over once that one has let go of
// the socket and the ledger, and goes on from the vault that it saved last.
func TestServeAwaitsABrokerThatEnds(t *testing.T) {
	t.Parallel()
	up, arrived := hangs(t)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.write")
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:demo.write",
		"action": map[string]any{"method": "POST", "path": "/v1/hang"}}), nil)
	<-arrived
	ending := b.cmd
	ended := make(chan struct{})
	go func() { ending.Wait(); close(ended) }()
	ending.Process.Signal(syscall.SIGTERM)
	b.Serve()
	<-ended
	b.Unlock()
	b.manage(wire.MethodSecretRotate, wire.SecretSet{Name: "demo", Value: []byte(canary + "2")}, proven(wire.MethodSecretRotate), nil, nil)
	c = b.Granted("http:demo.read")
	if op := c.MustAct("http:demo.read", readX); op.State != "completed" {
		t.Errorf("%+v", op)
	}
}
