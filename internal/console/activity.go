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
	asked := askedIn(rows)
	var shown []entry
	for _, r := range slices.Backward(rows) {
		e := entryOf(r, asked[r.OperationID])
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

// subject is what a row is about.
type subject struct{ Title, Detail string }

// askedIn says of each operation in the rows what it does, which stands only in
// the row that begins it.
func askedIn(rows []row) map[string]subject {
	asked := map[string]subject{}
	for _, r := range rows {
		if s := subjectOf(r); r.OperationID != "" && s.Title != "" {
			asked[r.OperationID] = s
		}
	}
	return asked
}

func subjectOf(r row) (s subject) {
	var request struct {
		Action *struct {
			Capability string
			HTTP       *struct{ Method, Path string }
			SSH        *struct{ Command string }
			Copy       *struct{ Direction, Remote string } `json:"ssh_copy"`
		} `json:"action"`
		Capability, Name, Note, Slot, Card string
	}
	json.Unmarshal(r.Request, &request) // a row of another shape has less to say
	switch a := request.Action; {
	case a != nil:
		s.Detail = a.Capability
		switch {
		case a.HTTP != nil:
			s.Title = a.HTTP.Method + " " + a.HTTP.Path
		case a.SSH != nil:
			s.Title = a.SSH.Command
		case a.Copy != nil:
			s.Title = "copy " + a.Copy.Direction + " " + a.Copy.Remote
		}
	case request.Card != "":
		var card approval.Card
		if json.Unmarshal([]byte(request.Card), &card) == nil {
			s.Title, s.Detail = what(card), card.Tag+", "+baseName(card.Verified.Agent.Kernel.ExePath)
		}
	default:
		s.Detail = firstOf(request.Name, request.Slot, request.Capability, request.Note)
	}
	if s.Detail == "" && r.SessionID != "" {
		var verified struct {
			Agent *approval.Process `json:"agent"`
		}
		if json.Unmarshal(r.Verified, &verified) == nil && verified.Agent != nil {
			s.Detail = programOf(verified.Agent.Kernel.ExePath)
		}
	}
	return s
}

// words of the kinds of rows that a person would not guess.
var words = map[string]string{"intent": "begun", "queued": "asked for", "outcome": "", "decision": "decided",
	"once": "allowed once", "until": "allowed for a time", "deny": "denied"}

// entryOf says what a row is about in a line.
func entryOf(r row, asked subject) entry {
	e := entry{row: r, Group: groupOf(r.Kind)}
	s := subjectOf(r)
	if s.Title == "" && asked.Title != "" {
		s = asked
	}
	e.Title, e.Detail = s.Title, s.Detail
	if e.Title == "" {
		e.Title = strings.ReplaceAll(strings.ReplaceAll(r.Kind, ".", " "), "_", " ")
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
	json.Unmarshal(r.Outcome, &outcome)
	switch res := outcome.Result; {
	case res.Status != 0:
		e.Result = "HTTP " + strconv.Itoa(res.Status)
	case res.Exit.Status != nil:
		e.Result = "exit " + strconv.Itoa(*res.Exit.Status)
	default:
		e.Result = firstOf(outcome.Choice, outcome.EndReason, outcome.Code, res.Exit.Signal, outcome.State, outcome.Reason)
	}
	e.Tone = toneOf(e.Kind, e.Result, outcome.State)
	if e.Result == "" || words[e.Result] != "" {
		e.Result = firstOf(words[e.Result], words[r.Kind])
	}
	e.Title, e.Detail, e.Result = approval.Escape(e.Title, 200), approval.Escape(e.Detail, 200), approval.Escape(strings.ReplaceAll(e.Result, "_", " "), 60)
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
	case kind == "decision", kind == "clicks.opened", area == "proof":
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
		if text := sentIn(r); text != "" {
			s.Parts = append(s.Parts, claim{"Sent", text})
		}
		rows = append(rows, s)
	}
	c.render(w, "operation.html", map[string]any{"Op": op, "Rows": rows, "Kept": keptOf(op)})
}

// sentIn is the text that the action of a row sends, which stands in the row in
// base64.
func sentIn(r row) string {
	var request struct {
		Action struct {
			HTTP struct{ Body []byte }
			SSH  struct{ Stdin []byte }
		}
	}
	json.Unmarshal(r.Request, &request) // a row of another shape sends nothing
	sent := append(request.Action.HTTP.Body, request.Action.SSH.Stdin...)
	if !isText(sent) {
		return ""
	}
	return shownText(sent)
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
