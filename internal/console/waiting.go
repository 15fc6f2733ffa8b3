package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// line is one waiting card in the list.
type line struct {
	ID, Tag, Title, Sub string
	Expires             time.Time
	Asked               int
	Alert               bool
	Readable            bool
}

// viewWaiting lists what waits. Without a proof there are names and times, as
// the broker gives them to everybody of the account.
func (c *Console) viewWaiting(w http.ResponseWriter, r *http.Request, p Page) {
	l, fail := ask[wire.List[wire.Approval]](p, wire.MethodApprovalList, wire.ApprovalList{})
	if fail != nil {
		refuse(w, fail)
		return
	}
	lines := make([]line, 0, len(l.Items))
	for _, a := range l.Items {
		lines = append(lines, lineOf(a))
	}
	st := c.Broker.Status()
	c.render(w, "waiting.html", map[string]any{"Lines": lines, "More": len(l.Rest) + l.More,
		"Reading": p.Reading(), "Clicking": p.Clicking(), "Locked": st.State == "locked", "Paused": st.Paused})
}

func lineOf(a wire.Approval) line {
	l := line{ID: a.ApprovalID, Tag: approval.Tag(a.ApprovalID), Title: strings.Join(a.Capabilities, ", "), Expires: a.ExpiresAt, Asked: a.Asked}
	var card approval.Card
	if a.Card == nil || json.Unmarshal(a.Card, &card) != nil {
		return l
	}
	l.Readable = true
	l.Title = what(card)
	l.Sub = baseName(card.Verified.Agent.Kernel.ExePath)
	l.Alert = len(card.Verified.Words) > 0 || card.Granting.Note != "" || card.Request.Warning() != ""
	return l
}

// what says in a few words what a card asks for.
func what(card approval.Card) string {
	if r := card.Request; r != nil {
		if r.Command != "" {
			return r.Command
		}
		if r.Method != "" {
			return r.Method + " " + r.Path
		}
		if r.Direction != "" {
			return "copy " + r.Direction + " " + r.Remote
		}
		return r.Capability
	}
	names := make([]string, len(card.Granting.Capabilities))
	for i, g := range card.Granting.Capabilities {
		names[i] = g.Name
	}
	return strings.Join(names, ", ")
}

func baseName(path string) string {
	if path == "" {
		return "a hidden program"
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

// cardView is a card as the page shows it: the document, and what surrounds it.
type cardView struct {
	approval.Card
	Digest, Document string
	Asked            int
	Program, What    string // who asks, and for what, in a few words
	OneAction, Each  bool   // about one action; each action will be asked for again. An attribute data-on… is a script to html/template
	Notes            []string
	Claims           []claim
	Change           change
	Clickable        bool
}

// claim is one thing that the caller says of itself.
type claim struct{ Name, Text string }

// viewCard shows one card in full. What is shown is what its digest names: the
// page compares nothing later and changes nothing.
func (c *Console) viewCard(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	id := r.URL.Query().Get("id")
	l, fail := ask[wire.List[wire.Approval]](o.page, wire.MethodApprovalList, wire.ApprovalList{ApprovalID: id})
	if fail == nil && (len(l.Items) != 1 || l.Items[0].Card == nil) {
		fail = wire.Errorf(wire.CodeBadRequest, "No such card waits: it was decided, withdrawn, or never there.")
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	a := l.Items[0]
	var card approval.Card
	if json.Unmarshal(a.Card, &card) != nil || approval.Digest(a.Card) != a.CardDigest {
		refuse(w, wire.Errorf(wire.CodeInternal, "The card and its digest do not match."))
		return
	}
	v := viewOf(card)
	v.Digest, v.Asked, v.Document = a.CardDigest, a.Asked, string(a.Card)
	v.Clickable = o.page.Clicking() && approval.Clickable(card)
	v.Change = changeOf(card, lastApproved(o.page, card))
	c.render(w, "card.html", v)
}

func viewOf(card approval.Card) cardView {
	v := cardView{Card: card, OneAction: card.Request != nil, Program: programOf(card.Verified.Agent.Kernel.ExePath)}
	v.What = what(card)
	v.Each = !v.OneAction && card.Granting.Unit == action.UnitOperation
	if card.Granting.Note != "" {
		v.Notes = append(v.Notes, card.Granting.Note)
	}
	if hidden := card.Request.Warning(); hidden != "" {
		v.Notes = append(v.Notes, hidden)
	}
	v.Notes = append(v.Notes, card.Verified.Words...)
	if n := card.Verified.OtherSessions; n > 0 {
		v.Notes = append(v.Notes, "this agent already has "+plural(n, "session")+"; this is another one, by itself")
	}
	if card.Verified.Home != "" {
		v.Notes = append(v.Notes, "a test home: "+card.Verified.Home)
	}
	v.Claims = claimsOf(card.Claimed)
	return v
}

func claimsOf(c approval.Claimed) []claim {
	all := []claim{{"Calls itself", strings.TrimSpace(c.Program + " " + c.Version)}, {"Purpose", c.Purpose},
		{"Command line", strings.Join(c.Process.Argv, " ")}, {"Script", c.Process.Script}, {"Directory", c.Process.Cwd}}
	for name, text := range c.Labels {
		all = append(all, claim{"Label", name + ": " + text})
	}
	all = slices.DeleteFunc(all, func(c claim) bool { return c.Text == "" })
	slices.SortStableFunc(all, func(a, b claim) int {
		if a.Name != "Label" || b.Name != "Label" {
			return 0
		}
		return strings.Compare(a.Text, b.Text)
	})
	return all
}
