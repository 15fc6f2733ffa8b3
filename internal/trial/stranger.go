package trial

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/wire"
)

// strangerOrder tells the unapproved process of a demonstration what to try
// with: an action that the agent was granted, and the agent's session.
type strangerOrder struct {
	Capability string `json:"capability"`
	Method     string `json:"method"`
	Path       string `json:"path"`
	SessionID  string `json:"session_id"`
}

// strangerWait is how long, in milliseconds, an action that should have been
// refused gets to show that it was not.
const strangerWait = 2000

// strangerReport says what each attempt came to: a state or the code of a
// refusal.
type strangerReport struct {
	Error     string `json:"error,omitempty"` // an attempt could not be made
	Opened    string `json:"opened"`          // a session with the capability
	Waiting   string `json:"waiting"`         // the action in that session
	Ungranted string `json:"ungranted"`       // the action in a session that was never granted anything
	Stolen    string `json:"stolen"`          // the action with the agent's session id
}

// Stranger is a process of the same account that nobody approved. It speaks to
// the broker without yett-mcp.
func Stranger(ctx context.Context, home, version string, in io.Reader, out io.Writer) error {
	return obey(ctx, in, out, func(o strangerOrder) strangerReport {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		var r strangerReport
		dial := func() (*client.Conn, error) {
			return client.DialHome(ctx, home, client.Options{Program: "stranger", Version: version})
		}
		if err := steal(ctx, dial, o, &r); err != nil {
			r.Error = err.Error()
		}
		return r
	})
}

func steal(ctx context.Context, dial func() (*client.Conn, error), o strangerOrder, r *strangerReport) error {
	action := client.Action{Method: &o.Method, Path: &o.Path}
	asking, err := dial()
	if err != nil {
		return err
	}
	defer asking.Close()
	s, err := asking.OpenSession(ctx, []string{o.Capability}, "")
	if err != nil {
		return err
	}
	r.Opened = s.Opened().State
	op, err := s.Do(ctx, o.Capability, action, "", strangerWait)
	if r.Waiting, err = outcomeOf(op, err); err != nil {
		return err
	}

	plain, err := dial()
	if err != nil {
		return err
	}
	defer plain.Close()
	if s, err = plain.OpenSession(ctx, nil, ""); err != nil {
		return err
	}
	op, err = s.Do(ctx, o.Capability, action, "", strangerWait)
	if r.Ungranted, err = outcomeOf(op, err); err != nil {
		return err
	}

	thief, err := dial()
	if err != nil {
		return err
	}
	defer thief.Close()
	op = client.Operation{}
	err = thief.Call(ctx, wire.MethodActionRequest, wire.ActionRequest{SessionID: o.SessionID, Sequence: 1, Capability: o.Capability, Action: &action, WaitMS: strangerWait}, &op)
	r.Stolen, err = outcomeOf(op, err)
	return err
}

// outcomeOf is the code of a refusal, or else the state of an operation.
func outcomeOf(op client.Operation, err error) (string, error) {
	var refused *client.Error
	switch {
	case errors.As(err, &refused):
		return refused.Code, nil
	case err != nil:
		return "", err
	case op.Reason != nil:
		return op.Reason.Code, nil
	}
	return string(op.State), nil
}
