package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// followWait is how long one question about changes waits.
const followWait = 20 * time.Second

// followed are the cards that a terminal has shown.
type followed struct {
	a     *app
	conn  *client.Conn
	shown map[string]wire.Approval
}

// follow shows what waits and goes on showing what comes, until it is
// interrupted or the broker ends.
func (a *app) follow(ctx context.Context, conn *client.Conn) error {
	f := followed{a: a, conn: conn, shown: map[string]wire.Approval{}}
	a.note("Following what waits; Ctrl-C ends it. Decide in another terminal: yett approve ID, yett approve ID --for 30m, yett deny ID.")
	for seen := int64(-1); ; {
		var now wire.ApprovalChanged
		err := call(ctx, conn, wire.MethodApprovalWait, wire.ApprovalWait{Seen: seen, WaitMS: followWait.Milliseconds()}, nil, &now)
		if errors.Is(err, errInterrupted) {
			return nil
		}
		if err != nil {
			return err
		}
		if now.Changes == seen {
			continue
		}
		seen = now.Changes
		if err := f.show(ctx); err != nil {
			return err
		}
	}
}

// show prints the cards that have come, and says of those that wait no more.
func (f followed) show(ctx context.Context) error {
	l, err := listCards(ctx, f.conn)
	if err != nil {
		return err
	}
	waits := map[string]bool{}
	err = eachCard(ctx, f.conn, l, func(int) bool { return true }, func(p wire.Approval) error {
		waits[p.ApprovalID] = true
		if _, shown := f.shown[p.ApprovalID]; shown {
			return nil
		}
		f.shown[p.ApprovalID] = p
		return f.printCome(p)
	})
	if err != nil {
		return err
	}
	for id, p := range f.shown {
		if !waits[id] {
			delete(f.shown, id)
			if err := f.printGone(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f followed) printCome(p wire.Approval) error {
	if f.a.json {
		return printJSON(f.a.stdout, map[string]any{"waits": p})
	}
	return f.a.printPending([]wire.Approval{p})
}

func (f followed) printGone(p wire.Approval) error {
	if f.a.json {
		return printJSON(f.a.stdout, map[string]any{"gone": p.ApprovalID})
	}
	_, err := fmt.Fprintf(f.a.stdout, "%s (%s) waits no more.\n", p.ApprovalID, approval.Tag(p.ApprovalID))
	return err
}
