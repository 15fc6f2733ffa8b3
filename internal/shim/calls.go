package shim

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
)

// replyMargin is what a reply may take beyond the wait that was asked for.
const replyMargin = 5 * time.Second

// call is one tool call.
type call struct {
	link      *link
	agent     *mcp.Implementation
	arguments json.RawMessage

	attached *attachment
	news     string
}

// session returns the session for this call, or the result that says why there
// is none.
func (c *call) session(ctx context.Context) (*client.Session, *mcp.CallToolResult) {
	a, news, err := c.link.attach(ctx, c.agent)
	if err != nil {
		return nil, unreachable(err)
	}
	c.attached, c.news = a, news
	return a.session, nil
}

// failed renders an error of a request to the broker. ifLost is the next step
// when the request could have set off an action whose outcome is lost.
func (c *call) failed(err error, ifLost string) *mcp.CallToolResult {
	c.link.settle(c.attached, err)
	return requestFailed(err, ifLost)
}

// ifLost is the next step when an action's answer did not come.
func ifLost(a client.Action) string {
	if a.Method != nil && slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, strings.ToUpper(*a.Method)) {
		return repeatItself
	}
	if a.Direction != nil && *a.Direction == "down" {
		return repeatItself
	}
	return checkFirst
}

// within bounds a request that asks the broker to wait for waitMS.
func within(ctx context.Context, waitMS int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(waitMS)*time.Millisecond+replyMargin)
}

func httpRequest(ctx context.Context, c *call) *mcp.CallToolResult {
	var in struct {
		Capability     string            `json:"capability"`
		Method         *string           `json:"method"`
		Path           *string           `json:"path"`
		Query          client.Query      `json:"query" wire:"optional"`
		Headers        map[string]string `json:"headers" wire:"optional"`
		Body           *string           `json:"body" wire:"optional"`
		BodyBase64     *string           `json:"body_base64" wire:"optional"`
		BodyJSON       json.RawMessage   `json:"body_json" wire:"optional"`
		Form           client.Query      `json:"form" wire:"optional"`
		IdempotencyKey string            `json:"idempotency_key" wire:"optional"`
		WaitMS         *int64            `json:"wait_ms" wire:"optional"`
	}
	if bad := decode(c.arguments, &in); bad != nil {
		return badCall(bad)
	}
	if given(in.Body != nil, in.BodyBase64 != nil, in.BodyJSON != nil, in.Form != nil) > 1 {
		return badCall(&badArguments{"give only one of body, body_base64, body_json and form"})
	}
	return c.act(ctx, in.Capability, client.Action{Method: in.Method, Path: in.Path, Query: in.Query,
		Headers: in.Headers, Body: in.Body, BodyBase64: in.BodyBase64, BodyJSON: in.BodyJSON, Form: in.Form}, in.IdempotencyKey, in.WaitMS)
}

func given(is ...bool) (n int) {
	for _, yes := range is {
		if yes {
			n++
		}
	}
	return n
}

// act asks for one action, once.
func (c *call) act(ctx context.Context, capability string, a client.Action, key string, wait *int64) *mcp.CallToolResult {
	ms, bad := waitOf(wait)
	if bad != nil {
		return badCall(bad)
	}
	s, no := c.session(ctx)
	if no != nil {
		return no
	}
	wctx, cancel := within(ctx, ms)
	defer cancel()
	op, err := s.Do(wctx, capability, a, key, ms)
	if err != nil {
		return c.failed(err, ifLost(a))
	}
	return c.operation(ctx, s, op, capability)
}

func getOperation(ctx context.Context, c *call) *mcp.CallToolResult {
	var in struct {
		OperationID string `json:"operation_id"`
		WaitMS      *int64 `json:"wait_ms" wire:"optional"`
	}
	if bad := decode(c.arguments, &in); bad != nil {
		return badCall(bad)
	}
	ms, bad := waitOf(in.WaitMS)
	if bad != nil {
		return badCall(bad)
	}
	s, no := c.session(ctx)
	if no != nil {
		return no
	}
	wctx, cancel := within(ctx, ms)
	defer cancel()
	op, err := s.Get(wctx, in.OperationID, ms)
	if err != nil {
		return c.failed(err, getAgain)
	}
	return c.operation(ctx, s, op, "")
}

func listAccess(ctx context.Context, c *call) *mcp.CallToolResult {
	if bad := decode(c.arguments, &struct{}{}); bad != nil {
		return badCall(bad)
	}
	s, no := c.session(ctx)
	if no != nil {
		return no
	}
	wctx, cancel := within(ctx, 0)
	defer cancel()
	list, err := s.ListAccess(wctx)
	if err != nil {
		return c.failed(err, noEffect)
	}
	return accessList(list)
}

func requestAccess(ctx context.Context, c *call) *mcp.CallToolResult {
	var in struct {
		Capabilities []string `json:"capabilities"`
		Purpose      string   `json:"purpose" wire:"optional"`
		WaitMS       *int64   `json:"wait_ms" wire:"optional"`
	}
	if bad := decode(c.arguments, &in); bad != nil {
		return badCall(bad)
	}
	ms, bad := waitOf(in.WaitMS)
	switch {
	case bad != nil:
		return badCall(bad)
	case len(in.Capabilities) == 0:
		return badCall(&badArguments{"capabilities must name at least one capability; list_access shows them"})
	}
	s, no := c.session(ctx)
	if no != nil {
		return no
	}
	wctx, cancel := within(ctx, ms)
	defer cancel()
	r, err := c.attached.ask(wctx, s, in.Capabilities, in.Purpose, ms)
	if err != nil {
		return c.failed(err, noEffect)
	}
	return accessResult(r, in.Capabilities)
}

// ask requests access, or goes on waiting for the card that an earlier call
// for the same capabilities left behind: a decision that was made meanwhile
// must be learned, not asked for again.
func (a *attachment) ask(ctx context.Context, s *client.Session, capabilities []string, purpose string, ms int64) (client.SessionResult, error) {
	set := slices.Clone(capabilities)
	slices.Sort(set)
	key := strings.Join(slices.Compact(set), "\n")
	a.mu.Lock()
	again := a.asked == key
	a.asked = key
	a.mu.Unlock()
	var r client.SessionResult
	var err error
	if again {
		r, err = s.Wait(ctx, ms)
	} else {
		r, err = s.RequestAccess(ctx, capabilities, purpose, ms)
	}
	if err != nil && ctx.Err() == nil || err == nil && r.Pending == nil {
		a.mu.Lock()
		if a.asked == key {
			a.asked = ""
		}
		a.mu.Unlock()
	}
	return r, err
}
