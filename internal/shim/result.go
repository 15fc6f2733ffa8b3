package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/wire"
)

// internalError answers a request other than a tool call that broke a handler.
var internalError = &jsonrpc.Error{Code: codeInternal, Message: "yett-mcp failed in a way that it did not expect; see its standard error"}

// text makes a result of one block that can be read without any other.
func text(isError bool, lines ...string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: isError, Content: []mcp.Content{&mcp.TextContent{Text: strings.Join(lines, "\n")}}}
}

// nextForAgent begins a line that tells the agent what to do itself. The next
// step after it is then the person's, and says so.
const nextForAgent = "Next for you: "

// failure is a refusal: a code, a sentence for the agent, and the next step.
func failure(code, message, nextStep string, more ...string) *mcp.CallToolResult {
	lines := []string{code + ": " + message}
	lines = append(lines, more...)
	label := "Next step: "
	if slices.ContainsFunc(more, func(l string) bool { return strings.HasPrefix(l, nextForAgent) }) {
		label = "For the person: "
	}
	if nextStep != "" {
		lines = append(lines, label+nextStep)
	}
	return text(true, lines...)
}

func badCall(bad *badArguments) *mcp.CallToolResult {
	return failure(wire.CodeBadRequest, bad.message+".", "Correct the arguments and call the tool again. Nothing was executed.")
}

// personFirst are the states in which nothing helps but what a person does.
// An agent that is only told the command would run it.
var personFirst = map[string]bool{
	wire.CodeUnavailable: true, wire.CodeLocked: true, wire.CodeQuarantined: true,
	wire.CodeProtocolUnsupported: true, wire.CodeLedgerUnavailable: true,
}

const tellPerson = "Tell the person, who has to act; then call again."

// state is a refusal of a broker that cannot be used as it is: what the agent
// is to tell the person, and that the same call works afterwards.
func state(code, message, nextStep string) *mcp.CallToolResult {
	return failure(code, message, nextStep, "Nothing was executed.", tellPerson)
}

// unreachable says why there is no session with a broker.
func unreachable(err error) *mcp.CallToolResult {
	var refused *client.Error
	var down *client.UnavailableError
	switch {
	case errors.As(err, &refused) && personFirst[refused.Code]:
		return state(refused.Code, refused.Message, refused.NextStep)
	case errors.As(err, &refused):
		return failure(refused.Code, refused.Message, refused.NextStep, "Nothing was executed.")
	case errors.As(err, &down):
		message, nextStep := unavailable(down)
		return state(wire.CodeUnavailable, message, nextStep)
	case errors.Is(err, errShut), errors.Is(err, context.Canceled):
		return failure(wire.CodeUnavailable, "yett-mcp is ending.", "Restart the agent's MCP server.", "Nothing was executed.")
	}
	return state(wire.CodeUnavailable, "The Yett broker did not answer: "+err.Error()+".", "Look at: yett status and the broker's log.")
}

// unavailable words the causes that need different steps.
func unavailable(e *client.UnavailableError) (message, nextStep string) {
	switch e.Cause {
	case client.Stale:
		_, nextStep = wire.Advice(wire.CodeUnavailable)
		return "The Yett broker has ended and left its socket.", nextStep
	case client.Starting:
		return "The Yett broker is being started by the service manager and has not taken over yet.",
			"Call again in a moment. If it stays so, look at the service's log, then: yett status."
	case client.Forbidden:
		return "yett-mcp may not reach the broker's socket: " + e.Err.Error() + ".",
			"If the agent runs in a sandbox, allow the socket there: " + e.Socket + "."
	case client.NotAnswering:
		return "The Yett broker is there but does not answer: " + e.Err.Error() + ".",
			"Look at: yett status and the broker's log. If its process hangs, end it, then: yett up."
	case client.Unsafe:
		return "The way to the broker's socket is not safe to use, so nothing was sent: " + e.Err.Error() + ".",
			"Find out who made it so, and put it right: yett status says the same."
	case client.Imposter:
		return "Whoever listens at the broker's socket was not proven to be Yett's broker, so nothing was asked of it: " + e.Err.Error() + ".",
			"Look at: yett status; ss -xlp shows who listens at the socket."
	}
	return wire.Advice(wire.CodeUnavailable)
}

// Next steps after the answer to a request that may have acted was lost.
const (
	noEffect     = "" // it could not have acted
	checkFirst   = "Do not simply repeat it. Look at yett activity, or check at the other side whether it happened."
	repeatItself = "Call again if the answer is still needed: repeating this method is allowed."
	getAgain     = "Call get_operation again: it says what became of the operation."
)

// requestFailed words an error of a request in a session. After a request that
// could act, it says what is known of the action; ifLost is then the next step.
func requestFailed(err error, ifLost string) *mcp.CallToolResult {
	var refused *client.Error
	var closed *client.ClosedError
	switch {
	case errors.As(err, &refused):
		return refusedCall(refused)
	case errors.As(err, &closed) && ifLost != noEffect && closed.Sent:
		return failure("outcome_unknown", "The channel to the broker ended before it answered; the action may or may not have been executed.", ifLost)
	case errors.As(err, &closed):
		return failure(wire.CodeUnavailable, "The channel to the broker ended. Nothing was executed by this call.",
			"Call again: the next call opens a new session. If the broker does not run: yett up.")
	case errors.Is(err, wire.ErrFrameTooLarge):
		return failure(wire.CodeFrameTooLarge, "The arguments are longer than 1 MiB. Nothing was executed.", "Send less at once.")
	case ifLost != noEffect && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return failure("outcome_unknown", "The call was given up before the broker answered; the action may still be carried out.", ifLost)
	case errors.Is(err, context.DeadlineExceeded):
		return failure(wire.CodeUnavailable, "The broker did not answer in time.", "Call again; if it stays so, look at yett status.")
	case errors.Is(err, context.Canceled):
		return failure(wire.CodeUnavailable, "The call was given up.", "Call again if it is still needed.")
	}
	return failure(wire.CodeInternal, err.Error()+".", "Report it.")
}

// refusedCall words an error of the broker, with the operation it is about.
func refusedCall(e *client.Error) *mcp.CallToolResult {
	var more []string
	nextStep := e.NextStep
	if id, ok := e.Data["operation_id"].(string); ok {
		more = append(more, "It is operation "+id+".")
	}
	switch e.Code {
	case wire.CodeSessionEnded:
		more = append(more, "The session with Yett has ended"+endReason(e)+". The next call opens a new one, which has no capabilities until request_access was decided.")
		if e.Data["end_reason"] == wire.CodeLocked {
			_, nextStep = wire.Advice(wire.CodeLocked)
			more = append(more, tellPerson)
		}
	case wire.CodeLocked, wire.CodeQuarantined, wire.CodeLedgerUnavailable:
		more = append(more, tellPerson)
	case wire.CodeOutcomeUnknown:
		more = append(more, "Nothing was executed now.")
		if p := pendingOf(e); p != nil {
			more = append(more, "A card asks the person whether it may run again.")
			more = append(more, pendingLines(p)...)
			more = append(more, "Once a person has approved it, make the same call again: it then runs once.")
		}
	}
	return failure(e.Code, e.Message, nextStep, more...)
}

// pendingOf reads the card that an error names, if it names one.
func pendingOf(e *client.Error) *client.Pending {
	var p client.Pending
	if e.Data["pending"] == nil || json.Unmarshal([]byte(compact(e.Data["pending"])), &p) != nil || p.ApprovalID == "" {
		return nil
	}
	return &p
}

// finish puts before a result what holds for every result of this session.
func (c *call) finish(r *mcp.CallToolResult) *mcp.CallToolResult {
	var before []string
	if home := c.link.home; home != "" {
		before = append(before, "[test broker under --home "+home+"]")
	}
	if c.news != "" {
		before = append(before, c.news)
	}
	if first, ok := r.Content[0].(*mcp.TextContent); ok && len(before) > 0 {
		first.Text = strings.Join(append(before, first.Text), "\n")
	}
	return r
}

// compact returns v as JSON on one line.
func compact(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprintf("(not readable: %v)", err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func pendingLines(p *client.Pending) []string {
	lines := []string{fmt.Sprintf("The card shows the words %q; tell the person, so that they know which one it is.", p.Tag)}
	where := "in a terminal: yett pending, then yett approve " + p.ApprovalID
	if p.ConsoleURL != nil {
		where = "at " + *p.ConsoleURL + ", or " + where
	}
	return append(lines, "The person decides "+where+". The card expires at "+p.ExpiresAt.UTC().Format("2006-01-02 15:04:05 MST")+".")
}
