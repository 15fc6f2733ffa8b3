package shim

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
)

func sshRun(ctx context.Context, c *call) *mcp.CallToolResult {
	var in struct {
		Capability     string            `json:"capability"`
		Command        *string           `json:"command" wire:"optional"`
		Argv           []string          `json:"argv" wire:"optional"`
		Stdin          *string           `json:"stdin" wire:"optional"`
		StdinBase64    *string           `json:"stdin_base64" wire:"optional"`
		Env            map[string]string `json:"env" wire:"optional"`
		PTY            *bool             `json:"pty" wire:"optional"`
		TimeoutMS      *int64            `json:"timeout_ms" wire:"optional"`
		IdempotencyKey string            `json:"idempotency_key" wire:"optional"`
		WaitMS         *int64            `json:"wait_ms" wire:"optional"`
	}
	if bad := decode(c.arguments, &in); bad != nil {
		return badCall(bad)
	}
	switch {
	case (in.Command == nil) == (in.Argv == nil):
		return badCall(&badArguments{"give exactly one of command and argv"})
	case in.Stdin != nil && in.StdinBase64 != nil:
		return badCall(&badArguments{"give either stdin or stdin_base64, not both"})
	}
	return c.act(ctx, in.Capability, client.Action{Command: in.Command, Argv: in.Argv, Stdin: in.Stdin,
		StdinBase64: in.StdinBase64, Env: in.Env, PTY: in.PTY, TimeoutMS: in.TimeoutMS}, in.IdempotencyKey, in.WaitMS)
}

func sshCopy(ctx context.Context, c *call) *mcp.CallToolResult {
	var in struct {
		Capability     string  `json:"capability"`
		Direction      *string `json:"direction"`
		Local          *string `json:"local"`
		Remote         *string `json:"remote"`
		Overwrite      *bool   `json:"overwrite" wire:"optional"`
		TimeoutMS      *int64  `json:"timeout_ms" wire:"optional"`
		IdempotencyKey string  `json:"idempotency_key" wire:"optional"`
		WaitMS         *int64  `json:"wait_ms" wire:"optional"`
	}
	if bad := decode(c.arguments, &in); bad != nil {
		return badCall(bad)
	}
	return c.act(ctx, in.Capability, client.Action{Direction: in.Direction, Local: in.Local, Remote: in.Remote,
		Overwrite: in.Overwrite, TimeoutMS: in.TimeoutMS}, in.IdempotencyKey, in.WaitMS)
}

func (c *call) sshResult(ctx context.Context, s *client.Session, op client.Operation, r client.SSHResult) *mcp.CallToolResult {
	how := "the exit status is unknown"
	switch {
	case r.Exit.Status != nil:
		how = fmt.Sprintf("exit status %d", *r.Exit.Status)
	case r.Exit.Signal != "":
		how = "ended by signal " + r.Exit.Signal
	}
	lines := []string{"completed: " + how + " (operation " + op.OperationID + ")."}
	if r.StdoutTruncated {
		lines = append(lines, cutOff("stdout", r.StdoutSize, r.StdoutTotal, r.StdoutTailRef))
	}
	if r.StderrTruncated {
		lines = append(lines, cutOff("stderr", r.StderrSize, r.StderrTotal, r.StderrTailRef))
	}
	if r.LeftOpen {
		lines = append(lines, "The command left a process in the background; what that writes from now on is not seen.")
	}
	lines = append(lines, compact(op))
	lines = append(lines, c.body(ctx, s, "stdout", r.StdoutRef, r.StdoutSize)...)
	lines = append(lines, c.body(ctx, s, "stderr", r.StderrRef, r.StderrSize)...)
	return text(false, lines...)
}

func cutOff(name string, kept, total int64, tail string) string {
	return fmt.Sprintf("%s had %d bytes; the first %d are kept, and its end: read_result with body_ref %q.", name, total, kept, tail)
}

func copyResult(op client.Operation, r client.CopyResult) *mcp.CallToolResult {
	way := r.Local + " to the host as " + r.Remote
	if r.Direction == "down" {
		way = r.Remote + " of the host to " + r.Local
	}
	did := "copied"
	if r.Replaced {
		did = "copied over the file that was there:"
	}
	return text(false, fmt.Sprintf("completed: %s %s, %d bytes (operation %s).", did, way, r.Size, op.OperationID), compact(op))
}
