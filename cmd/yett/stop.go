package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/peer"
	"github.com/yett-broker/yett/internal/wire"
)

func newStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "End the broker and every session",
		Long: "Ends the broker and every session; also a broker of another release. Where none runs it\n" +
			"says so and exits with 4.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.stop(c.Context()) },
	}
}

func (a *app) stop(ctx context.Context) error {
	if why := a.noneRuns(ctx); why != "" {
		if a.json {
			if err := printJSON(a.stdout, map[string]any{"stopped": false}); err != nil {
				return err
			}
		}
		return &wire.Error{Code: wire.CodeUnavailable, Message: why}
	}
	conn, _, err := a.dialAny(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	process := a.brokerProcess(ctx)
	defer process.close()
	if err := call(ctx, conn, wire.MethodBrokerStop, wire.Empty{}, nil, nil); err != nil {
		return err
	}
	select {
	case <-conn.Done(): // the broker closes the channel when it has stopped
	case <-ctx.Done():
	}
	if !process.ended(ctx, endTime) {
		a.note("The broker's process has not ended yet: it still waits for what it had begun.")
	}
	return a.result(map[string]any{"stopped": true}, "Stopped. Every session has ended.")
}

// noneRuns says that there is no broker to stop, or nothing. Where a service
// manager listens it is asked first: connecting would start one.
func (a *app) noneRuns(ctx context.Context) string {
	loc, err := a.location()
	if err != nil {
		return ""
	}
	if m := a.serviceManager(ctx, loc); m != nil {
		if s := m.state(ctx); s.Listening && s.PID == 0 {
			return "No broker is running. The service manager starts one when somebody connects; yett service uninstall ends that."
		}
	}
	conn, err := endpoint.Dial(ctx, loc)
	if err == nil {
		conn.Broker.Close()
		conn.UnixConn.Close()
		return ""
	}
	var u *endpoint.UnavailableError
	if errors.As(err, &u) && (u.Cause == endpoint.NotRunning || u.Cause == endpoint.Stale) {
		return "No broker is running; there is nothing to stop."
	}
	return ""
}

// endTime is how long a broker that was told to end may take: it gives what
// runs some seconds, and closes the ledger after that.
const endTime = 10 * time.Second

// brokerProcess holds the broker's process, so that its end can be waited for:
// the channel closes earlier, while the ledger is still the broker's.
func (a *app) brokerProcess(ctx context.Context) held {
	loc, err := a.location()
	if err != nil {
		return held{}
	}
	conn, err := endpoint.Dial(ctx, loc)
	if err != nil {
		return held{}
	}
	conn.UnixConn.Close()
	return held{conn.Broker}
}

// held is a process, or none that could be had.
type held struct{ process *peer.Process }

// ended waits until the process has ended, and reports whether it has.
func (h held) ended(ctx context.Context, limit time.Duration) bool {
	if h.process == nil {
		return true
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case <-h.process.Done():
		return true
	case <-ctx.Done():
	case <-over.C:
	}
	return false
}

func (h held) close() {
	if h.process != nil {
		h.process.Close()
	}
}
