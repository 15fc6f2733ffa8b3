package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

// activityRange is which rows are printed.
type activityRange struct {
	last    int
	session string
	since   string

	after time.Time // what since means
}

func newActivity(a *app) *cobra.Command {
	var r activityRange
	c := &cobra.Command{
		Use:   "activity",
		Short: "Print the ledger, oldest first",
		Long: "Prints the rows of the ledger, oldest first: number, time, kind, the process, and what it\n" +
			"was about. A decision has the two words of its card. With --json one object a line, with\n" +
			"everything that was recorded. Without your proof only the number of rows is told.",
		Example: "  yett activity --last 20\n  yett activity --since 2h\n  yett activity --session s_… --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("last") && r.last < 1 {
				return usageError{errors.New("--last takes a number from 1 on")}
			}
			if r.since != "" {
				var err error
				if r.after, err = momentOf(r.since, time.Now()); err != nil {
					return usageError{err}
				}
			}
			return a.activity(c.Context(), r)
		},
	}
	c.Flags().IntVar(&r.last, "last", 0, "only the last `N` of them")
	c.Flags().StringVar(&r.session, "session", "", "only those of the session `ID`")
	c.Flags().StringVar(&r.since, "since", "", "only those since `WHEN`: a length of time like 30m, 8h or 7d, a date, or date and time")
	return c
}

// momentOf reads a length of time before now, a date or a date and time.
func momentOf(when string, now time.Time) (time.Time, error) {
	if d, err := spanOf(when); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, when, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since takes a length of time like 30m, 8h or 7d, or a date like 2006-01-02, and not %q", when)
}

// spanOf reads a length of time; whole days too.
func spanOf(s string) (time.Duration, error) {
	var days int
	var rest string
	if n, _ := fmt.Sscanf(s, "%d%s", &days, &rest); n == 2 && rest == "d" && days >= 0 && days < 100_000 {
		return time.Duration(days) * 24 * time.Hour, nil
	}
	return time.ParseDuration(s)
}

func (a *app) activity(ctx context.Context, r activityRange) error {
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.openReading(ctx, conn); err != nil {
		return err
	}
	p := newActivityPrinter(a)
	hidden, err := eachRow(ctx, conn, r, p.print)
	if err != nil {
		return err
	}
	if p.printed == 0 && hidden == 0 {
		a.note("No such row.")
	}
	a.hidden(hidden, "rows")
	return nil
}

// activityPage is how many rows are asked for at once.
const activityPage = 500

// eachRow hands on the rows of a range, oldest first. Where only the last ones
// are wanted it looks for their beginning from the end.
func eachRow(ctx context.Context, conn *client.Conn, r activityRange, do func(json.RawMessage, ledger.Row) error) (hidden int, err error) {
	if r.last == 0 && r.after.IsZero() {
		return forward(listerOf(ctx, conn), 1, 0, func(raw json.RawMessage, row ledger.Row) error {
			if r.wants(row) {
				return do(raw, row)
			}
			return nil
		})
	}
	newest, hidden, err := newestRow(ctx, conn)
	if err != nil {
		return hidden, err
	}
	type kept struct {
		raw json.RawMessage
		row ledger.Row
	}
	var pages [][]kept
	found := 0
	for to, over := newest, false; to > 0 && !over && (r.last == 0 || found < r.last); to -= activityPage {
		var page []kept
		_, err := forward(listerOf(ctx, conn), max(1, to-activityPage+1), to, func(raw json.RawMessage, row ledger.Row) error {
			over = over || row.At.Before(r.after) // clocks can go back; a row before it ends the search, not the page
			if r.wants(row) {
				page = append(page, kept{raw, row})
			}
			return nil
		})
		if err != nil {
			return hidden, err
		}
		found += len(page)
		pages = append(pages, page)
	}
	skip := 0
	if r.last > 0 {
		skip = max(0, found-r.last)
	}
	for i := len(pages) - 1; i >= 0; i-- {
		for _, k := range pages[i][min(skip, len(pages[i])):] {
			if err := do(k.raw, k.row); err != nil {
				return hidden, err
			}
		}
		skip = max(0, skip-len(pages[i]))
	}
	return hidden, nil
}

func (r activityRange) wants(row ledger.Row) bool {
	return (r.session == "" || row.SessionID == r.session) && !row.At.Before(r.after)
}

// newestRow is the number of the newest row that may be read, 0 if there is none.
func newestRow(ctx context.Context, conn *client.Conn) (n int64, hidden int, err error) {
	var l wire.List[ledger.Row]
	if err := call(ctx, conn, wire.MethodActivityList, wire.ActivityList{Limit: 1, Newest: true}, nil, &l); err != nil {
		return 0, 0, err
	}
	if len(l.Items) == 0 {
		return 0, l.Hidden, nil
	}
	return l.Items[len(l.Items)-1].N, 0, nil
}

// lister asks for a page of rows.
type lister func(request wire.ActivityList, into any) error

func listerOf(ctx context.Context, conn *client.Conn) lister {
	return func(request wire.ActivityList, into any) error {
		return call(ctx, conn, wire.MethodActivityList, request, nil, into)
	}
}

// forward hands on the rows from one number to another, or to the end if that
// is 0.
func forward(list lister, from, to int64, do func(json.RawMessage, ledger.Row) error) (hidden int, err error) {
	for to == 0 || from <= to {
		limit := activityPage
		if to > 0 {
			limit = int(min(int64(limit), to-from+1))
		}
		var l wire.List[json.RawMessage]
		if err := list(wire.ActivityList{From: from, Limit: limit}, &l); err != nil {
			return hidden, err
		}
		hidden = max(hidden, l.Hidden)
		if len(l.Items) == 0 {
			break
		}
		for _, raw := range l.Items {
			var row ledger.Row
			if err := json.Unmarshal(raw, &row); err != nil {
				return hidden, fmt.Errorf("reading a row: %w", err)
			}
			from = row.N + 1
			if err := do(raw, row); err != nil {
				return hidden, err
			}
		}
	}
	return hidden, nil
}

// activityPrinter prints rows as they come.
type activityPrinter struct {
	a       *app
	rows    *screen.Rows
	printed int
}

func newActivityPrinter(a *app) *activityPrinter {
	return &activityPrinter{a: a, rows: screen.NewRows()}
}

func (p *activityPrinter) print(raw json.RawMessage, row ledger.Row) error {
	p.printed++
	if p.a.json {
		return printJSON(p.a.stdout, raw)
	}
	_, err := fmt.Fprintln(p.a.stdout, p.rows.Line(row))
	return err
}
