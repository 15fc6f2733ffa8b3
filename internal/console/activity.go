package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// How much of the ledger a view reads.
const (
	rowsShown = 200
	rowsRead  = 2000
)

// entry is one row in the timeline.
type entry struct {
	row
	Group, Tone, Title, Result, Detail string
}

// groups are what the timeline can be narrowed to.
var groups = []string{"actions", "decisions", "sessions", "keys", "refusals"}

func (c *Console) viewActivity(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	q := r.URL.Query()
	group, text := q.Get("group"), strings.ToLower(q.Get("text"))
	before, _ := strconv.ParseInt(q.Get("before"), 10, 64)
	rows, fail := newestRows(o.page, max(before, 0), rowsRead)
	if fail != nil {
		refuse(w, fail)
		return
	}
	var shown []entry
	for _, r := range slices.Backward(rows) {
		e := entryOf(r)
		if group != "" && e.Group != group || text != "" && !strings.Contains(strings.ToLower(e.Title+" "+e.Detail+" "+e.Result+" "+e.SessionID+" "+e.OperationID), text) {
			continue
		}
		if shown = append(shown, e); len(shown) == rowsShown {
			break
		}
	}
	older := int64(0)
	switch {
	case len(shown) == rowsShown:
		older = shown[len(shown)-1].N
	case len(rows) > 0 && rows[0].N > 1:
		older = rows[0].N
	}
	c.render(w, "activity.html", map[string]any{"Entries": shown, "Chart": chartOf(rows), "Group": group, "Text": q.Get("text"),
		"Groups": groups, "Older": older, "Read": len(rows), "Before": before})
}

// entryOf says what a row is about in a line.
func entryOf(r row) entry {
	e := entry{row: r, Title: strings.ReplaceAll(strings.ReplaceAll(r.Kind, ".", " "), "_", " ")}
	var request struct {
		Action *struct {
			Capability string
			HTTP       *struct{ Method, Path string }
			SSH        *struct{ Command string }
		} `json:"action"`
		Capability, Name, Note, Slot string
	}
	var outcome struct {
		Code, Detail, Choice, State, Reason, Message string
		EndReason                                    string `json:"end_reason"`
		Result                                       struct {
			Status int
			Exit   struct {
				Status *int
				Signal string
			}
		}
	}
	json.Unmarshal(r.Request, &request) // a row of another shape has less to say
	json.Unmarshal(r.Outcome, &outcome)
	e.Group = groupOf(r.Kind)
	if a := request.Action; a != nil {
		e.Detail = a.Capability
		switch {
		case a.HTTP != nil:
			e.Title = a.HTTP.Method + " " + a.HTTP.Path
		case a.SSH != nil:
			e.Title = a.SSH.Command
		}
	} else if s := firstOf(request.Name, request.Slot, request.Capability, request.Note); s != "" {
		e.Detail = s
	}
	switch res := outcome.Result; {
	case res.Status != 0:
		e.Result = "HTTP " + strconv.Itoa(res.Status)
	case res.Exit.Status != nil:
		e.Result = "exit " + strconv.Itoa(*res.Exit.Status)
	default:
		e.Result = firstOf(outcome.Choice, outcome.EndReason, outcome.Code, res.Exit.Signal, outcome.State, outcome.Reason)
	}
	e.Tone = toneOf(e.Kind, e.Result, outcome.State)
	e.Title, e.Detail, e.Result = approval.Escape(e.Title, 200), approval.Escape(e.Detail, 200), approval.Escape(e.Result, 60)
	return e
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

func groupOf(kind string) string {
	area, _, _ := strings.Cut(kind, ".")
	switch {
	case kind == "intent", kind == "outcome", kind == "queued", kind == "operation.resolved":
		return "actions"
	case kind == "decision", kind == "clicks.opened", kind == "proof.passkey":
		return "decisions"
	case kind == "refused", kind == "denied", strings.HasSuffix(kind, ".refused"):
		return "refusals"
	case area == "session":
		return "sessions"
	}
	return "keys"
}

func toneOf(kind, result, state string) string {
	switch {
	case state == "indeterminate", kind == "ledger.refused":
		return "bad"
	case groupOf(kind) == "refusals", result == approval.ChoiceDeny:
		return "warn"
	case kind == "outcome", result == approval.ChoiceOnce, result == approval.ChoiceUntil:
		return "good"
	}
	return ""
}

// viewOperation shows one operation with all its rows.
func (c *Console) viewOperation(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	op, fail := ask[wire.OperationShown](o.page, wire.MethodOperationShow, wire.OperationID{OperationID: r.URL.Query().Get("id")})
	if fail != nil {
		refuse(w, fail)
		return
	}
	type shownRow struct {
		row
		Parts []claim
	}
	var rows []shownRow
	for _, raw := range op.Rows {
		var r row
		if json.Unmarshal(raw, &r) != nil {
			continue
		}
		s := shownRow{row: r}
		for _, part := range []struct {
			name string
			raw  json.RawMessage
		}{{"Request", r.Request}, {"Granted", r.Granted}, {"Outcome", r.Outcome}, {"Established", r.Verified}, {"Claimed", r.Claimed}} {
			if text := indented(part.raw); text != "" {
				s.Parts = append(s.Parts, claim{part.name, text})
			}
		}
		rows = append(rows, s)
	}
	c.render(w, "operation.html", map[string]any{"Op": op, "Rows": rows})
}

// indented writes a part of a row so that it can be read, in characters that
// draw themselves.
func indented(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	return approval.Printable(b.String())
}
