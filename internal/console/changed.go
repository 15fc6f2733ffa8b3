package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// How far back the last approved card is looked for.
const (
	lookBack     = 2000
	lookBackPage = 500
)

// approved is a card that a person said yes to.
type approved struct {
	card approval.Card
	at   time.Time
}

// change is what is different from the last card of the same program that was
// approved for the same thing. Without one it is empty and First.
type change struct {
	First bool
	Since time.Time
	Facts []fact
}

type fact struct{ Name, Before, Now string }

// lastApproved looks in the newest rows for a decision about a card that is like
// this one: the same program by its path, for the same capabilities.
func lastApproved(p Page, card approval.Card) *approved {
	want := likeness(card)
	for before, seen := int64(0), 0; seen < lookBack; {
		rows, fail := newestRows(p, before, lookBackPage)
		if fail != nil || len(rows) == 0 {
			return nil
		}
		for i := len(rows) - 1; i >= 0; i-- {
			if a := approvedIn(rows[i]); a != nil && likeness(a.card) == want {
				return a
			}
		}
		before, seen = rows[0].N, seen+len(rows)
		if before <= 1 {
			return nil
		}
	}
	return nil
}

func likeness(c approval.Card) string {
	names := make([]string, len(c.Granting.Capabilities))
	for i, g := range c.Granting.Capabilities {
		names[i] = g.Name
	}
	return fmt.Sprint(c.Verified.Agent.Kernel.ExePath, names, c.Request != nil)
}

// approvedIn reads the card of a row that records a yes.
func approvedIn(r row) *approved {
	if r.Kind != "decision" {
		return nil
	}
	var request struct {
		Card string `json:"card"`
	}
	var outcome struct {
		Choice string `json:"choice"`
	}
	a := approved{at: r.At}
	if json.Unmarshal(r.Outcome, &outcome) != nil || outcome.Choice == approval.ChoiceDeny ||
		json.Unmarshal(r.Request, &request) != nil || json.Unmarshal([]byte(request.Card), &a.card) != nil {
		return nil
	}
	return &a
}

func changeOf(now approval.Card, last *approved) change {
	if last == nil {
		return change{First: true}
	}
	c := change{Since: last.at}
	old := last.card
	note := func(name, before, after string) {
		if before != after {
			c.Facts = append(c.Facts, fact{name, before, after})
		}
	}
	note("Program file", old.Verified.Agent.Filesystem.SHA256, now.Verified.Agent.Filesystem.SHA256)
	note("States", strings.Join(old.Verified.Words, "; "), strings.Join(now.Verified.Words, "; "))
	note("Started by", parents(old), parents(now))
	note("Account", fmt.Sprint(old.Verified.Agent.Kernel.UID), fmt.Sprint(now.Verified.Agent.Kernel.UID))
	for _, g := range now.Granting.Capabilities {
		i := slices.IndexFunc(old.Granting.Capabilities, func(o approval.Capability) bool { return o.Name == g.Name })
		if i >= 0 {
			note(g.Name, capabilityWords(old.Granting.Capabilities[i]), capabilityWords(g))
		}
	}
	note("Unit", string(old.Granting.Unit), string(now.Granting.Unit))
	note("Script (claimed)", old.Claimed.Process.Script, now.Claimed.Process.Script)
	note("Directory (claimed)", old.Claimed.Process.Cwd, now.Claimed.Process.Cwd)
	note("Purpose (claimed)", old.Claimed.Purpose, now.Claimed.Purpose)
	return c
}

// parents are the programs that led to the agent, without what differs between
// two starts of the same.
func parents(c approval.Card) string {
	var names []string
	for _, a := range c.Verified.Chain {
		names = append(names, baseName(a.Kernel.ExePath))
	}
	return strings.Join(names, " ← ")
}

func capabilityWords(c approval.Capability) string {
	words := []string{c.Target}
	for _, list := range [][]string{c.Methods, c.Paths, c.Query, c.Commands, c.Env, c.HostKeys} {
		if len(list) > 0 {
			words = append(words, strings.Join(list, ", "))
		}
	}
	for _, h := range c.Via {
		words = append(words, "by way of "+h.Target+" ("+strings.Join(h.HostKeys, ", ")+")")
	}
	if f := c.Copy; f != nil {
		words = append(words, fmt.Sprintf("copies %s, there %s, here %s, up to %s, overwriting: %t", f.Direction, strings.Join(f.Remote, ", "), strings.Join(f.Local, ", "), f.MaxSize, f.Overwrite))
	}
	if c.PTY {
		words = append(words, "a terminal")
	}
	if c.Budget != "" {
		words = append(words, c.Budget)
	}
	if c.Confirm != "" {
		words = append(words, "asked each time")
	}
	if c.Insecure {
		words = append(words, "plain http")
	}
	return strings.Join(words, " · ")
}

// row is a row of the ledger as the broker lists it.
type row struct {
	N           int64           `json:"n"`
	At          time.Time       `json:"at"`
	Kind        string          `json:"kind"`
	SessionID   string          `json:"session_id"`
	OperationID string          `json:"operation_id"`
	Verified    json.RawMessage `json:"verified"`
	Claimed     json.RawMessage `json:"claimed"`
	Granted     json.RawMessage `json:"granted"`
	Request     json.RawMessage `json:"request"`
	Outcome     json.RawMessage `json:"outcome"`
}

// newestRows gives the last rows before one, oldest first. A page that was too
// long for one answer is continued.
func newestRows(p Page, before int64, limit int) ([]row, *wire.Error) {
	request := wire.ActivityList{From: before, Limit: limit, Newest: true}
	var rows []row
	for {
		l, fail := ask[wire.List[json.RawMessage]](p, wire.MethodActivityList, request)
		if fail != nil || len(l.Items) == 0 {
			return rows, fail
		}
		for _, raw := range l.Items {
			var r row
			if err := json.Unmarshal(raw, &r); err != nil {
				return nil, wire.NewError(wire.CodeInternal)
			}
			rows = append(rows, r)
		}
		if before > 0 && rows[len(rows)-1].N >= before-1 || len(rows) >= limit {
			return rows, nil
		}
		request = wire.ActivityList{From: rows[len(rows)-1].N + 1, Limit: limit - len(rows)}
	}
}
