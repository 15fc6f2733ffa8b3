package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/wire"
)

// operation words the state of an operation. capability is empty when it was
// asked for by id.
func (c *call) operation(ctx context.Context, s *client.Session, op client.Operation, capability string) *mcp.CallToolResult {
	switch op.State {
	case client.Completed:
		return c.completed(ctx, s, op)
	case client.Queued:
		lines := []string{"queued: operation " + op.OperationID + " waits and nothing was executed yet."}
		if op.Pending != nil {
			lines = append(lines, pendingLines(op.Pending)...)
		} else {
			lines = append(lines, "It waits until an equal action of another agent has ended.")
		}
		lines = append(lines, fmt.Sprintf("Next: call get_operation with operation_id %q; an approved action is carried out by that call. Do not repeat the action.", op.OperationID))
		return text(false, append(lines, compact(op))...)
	case client.Executing:
		return text(false, "executing: operation "+op.OperationID+" is under way and may already have had its effect.",
			fmt.Sprintf("Next: call get_operation with operation_id %q. Do not repeat the action.", op.OperationID), compact(op))
	case client.Denied:
		return denied(op, capability)
	case client.Indeterminate:
		r := op.Reason
		if r == nil {
			r = &client.Reason{Message: "It may or may not have happened.",
				NextStep: "Check at the other side whether it happened. Do not repeat it before that is known."}
		}
		return failure("indeterminate", r.Message, r.NextStep, "It is operation "+op.OperationID+".", compact(op))
	}
	return failure(wire.CodeInternal, fmt.Sprintf("The broker answered with the unknown state %q.", op.State), "Update yett-mcp.", compact(op))
}

func denied(op client.Operation, capability string) *mcp.CallToolResult {
	r := op.Reason
	if r == nil {
		r = wire.NewReason(wire.ReasonDenied, "")
	}
	more := []string{"denied: operation " + op.OperationID + " was not executed and will not be."}
	if r.Code == wire.ReasonCapabilityNotGranted {
		if capability == "" {
			capability = "the capability"
		}
		more = append(more, nextForAgent+"call request_access with "+capability+", then repeat the action.")
	}
	if r.Code == wire.CodeOutcomeUnknown {
		more = append(more, nextForAgent+"make the same call again; a person is then asked whether it may run.")
	}
	return failure(r.Code, r.Message, r.NextStep, append(more, compact(op))...)
}

// completed words a known outcome and adds the bodies that are short text.
func (c *call) completed(ctx context.Context, s *client.Session, op client.Operation) *mcp.CallToolResult {
	var shape struct {
		Status *int            `json:"status"`
		Exit   json.RawMessage `json:"exit"`
		Sent   *bool           `json:"sent"`
		SHA256 *string         `json:"sha256"`
	}
	if len(op.Result) == 0 {
		return text(false, "completed: operation "+op.OperationID+" has ended, but its result is kept no longer. Do not repeat it for that alone: yett activity shows the person what came of it.", compact(op))
	}
	if err := json.Unmarshal(op.Result, &shape); err != nil {
		return failure(wire.CodeInternal, "The broker's result cannot be read: "+err.Error()+".", "Update yett-mcp.", compact(op))
	}
	switch {
	case shape.Sent != nil && !*shape.Sent:
		var r client.NotSent
		if json.Unmarshal(op.Result, &r) == nil {
			if r.NextStep == "" {
				r.NextStep = "Try again later. If it stays so, the person looks whether the target can be reached from this machine."
			}
			return failure("not_sent", strings.TrimSuffix(r.Error, ".")+". The action never left; it had no effect.", r.NextStep, compact(op))
		}
	case shape.Exit != nil:
		var r client.SSHResult
		if json.Unmarshal(op.Result, &r) == nil {
			return c.sshResult(ctx, s, op, r)
		}
	case shape.SHA256 != nil:
		var r client.CopyResult
		if json.Unmarshal(op.Result, &r) == nil {
			return copyResult(op, r)
		}
	case shape.Status != nil:
		var r client.HTTPResult
		if json.Unmarshal(op.Result, &r) == nil {
			return c.httpResult(ctx, s, op, r)
		}
	}
	return text(false, "completed: operation "+op.OperationID+".", compact(op))
}

func (c *call) httpResult(ctx context.Context, s *client.Session, op client.Operation, r client.HTTPResult) *mcp.CallToolResult {
	lines := []string{fmt.Sprintf("completed: HTTP %d %s (operation %s).", r.Status, http.StatusText(r.Status), op.OperationID)}
	if again := retryAfter(r); again != "" {
		lines = append(lines, again)
	}
	if r.Truncated {
		why := "it was cut off at the broker's limit"
		if r.Partial != "" {
			why = r.Partial
		}
		lines = append(lines, "The body is partial: "+why+".")
	}
	if r.Redacted > 0 {
		lines = append(lines, echoes(r.Redacted))
	}
	if r.Withheld != "" {
		lines = append(lines, "The body is withheld: "+r.Withheld)
	}
	if r.NotKept != "" {
		lines = append(lines, fmt.Sprintf("The body of the answer cannot be read: %s. The action is done; do not repeat it for that alone.", r.NotKept))
	}
	lines = append(lines, compact(op))
	if r.BodyRef != "" {
		lines = append(lines, c.body(ctx, s, "body", r.BodyRef, r.Size)...)
	}
	return text(false, lines...)
}

// retryAfter says when to ask again, where the other side says so. The value
// stands in a text of ours only if it is a number or a date.
func retryAfter(r client.HTTPResult) string {
	if r.Status != http.StatusTooManyRequests && r.Status != http.StatusServiceUnavailable {
		return ""
	}
	after := r.Headers["Retry-After"]
	if n, err := strconv.ParseUint(after, 10, 31); err == nil {
		return fmt.Sprintf("The other side asks to wait: repeat the request after %d seconds, not before.", n)
	}
	if at, err := http.ParseTime(after); err == nil {
		return "The other side asks to wait: repeat the request after " + at.UTC().Format(time.RFC1123) + ", not before."
	}
	return "The other side is busy or limits requests: wait before you repeat the request."
}

func echoes(n int) string {
	if n == 1 {
		return "1 echo of the credential in the answer was replaced."
	}
	return fmt.Sprintf("%d echoes of the credential in the answer were replaced.", n)
}
