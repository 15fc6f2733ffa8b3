package screen

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/ledger"
)

// Rows writes rows of the ledger in a line each, in their order: an outcome names
// the row of its intent.
type Rows struct {
	intents map[string]int64 // by operation
}

func NewRows() *Rows { return &Rows{intents: map[string]int64{}} }

// Line is one row.
func (p *Rows) Line(row ledger.Row) string {
	if row.Kind == "intent" {
		p.intents[row.OperationID] = row.N
	}
	line := fmt.Sprintf("%6d  %s  %-15s  %-18s  %s", row.N, row.At.Local().Format("2006-01-02 15:04:05"), row.Kind, rowProcess(row), p.about(row))
	return strings.TrimRight(line, " ")
}

// longestName of a program is shown; the rest of the path is in --json.
const longestName = 12

// rowProcess names the process that a row is about: the agent where there is one.
func rowProcess(row ledger.Row) string {
	type process struct {
		PID     int
		ExePath string `json:"exe_path"`
		Kernel  *struct {
			PID     int
			ExePath string `json:"exe_path"`
		}
	}
	var v struct{ Agent, Peer *process }
	json.Unmarshal(row.Verified, &v) // a row of another shape names nobody
	of := v.Agent
	if of == nil {
		of = v.Peer
	}
	if of == nil {
		return ""
	}
	pid, exe := of.PID, of.ExePath
	if of.Kernel != nil {
		pid, exe = of.Kernel.PID, of.Kernel.ExePath
	}
	if pid == 0 {
		return ""
	}
	name := "hidden"
	if exe != "" {
		name = path.Base(exe)
	}
	return approval.Escape(name, longestName) + " " + strconv.Itoa(pid)
}

// what the parts of a row say that a line has room for.
type rowParts struct {
	request struct {
		Action *struct {
			Capability string
			HTTP       *struct{ Method, Path string }
			SSH        *struct{ Command string }
			Copy       *struct{ Direction, Remote string } `json:"ssh_copy"`
		}
		Capabilities           []string
		Name, Difference, Slot string
		Method, Passkey        string
		TouchID                string `json:"touchid"`
		Reason                 string
		ApprovalID             string `json:"approval_id"`
		SessionID              string `json:"session_id"`
	}
	claimed  struct{ Purpose string }
	verified struct {
		Proof struct{ By, Name string }
	}
	granted struct {
		Capabilities []string
		Until        time.Time
	}
	outcome struct {
		Code, Detail, Choice string
		State                string
		Result               struct {
			Status int
			Size   *int64
			Exit   struct {
				Status *int
				Signal string
			}
			Error string
		}
		EndReason string `json:"end_reason"`
	}
}

// about is what a row says in one line: what was asked, and what came of it.
func (p *Rows) about(row ledger.Row) string {
	var r rowParts
	json.Unmarshal(row.Request, &r.request) // a row of another shape has no summary
	json.Unmarshal(row.Claimed, &r.claimed)
	json.Unmarshal(row.Granted, &r.granted)
	json.Unmarshal(row.Verified, &r.verified)
	json.Unmarshal(row.Outcome, &r.outcome)
	words := []string{r.request.Name, r.request.Passkey, r.request.TouchID, r.request.Method, r.request.Slot, r.request.Reason, strings.Join(r.request.Capabilities, ", "), r.request.SessionID}
	if row.Kind == "outcome" {
		words = append(words, p.ofIntent(row))
	}
	words = append(words, r.decided()...)
	words = append(words, r.asked()...)
	words = append(words, r.came()...)
	if r.request.Difference != "" {
		words = append(words, strings.Join(headings(r.request.Difference), ", "))
	}
	if row.Kind == "session.opened" && r.claimed.Purpose != "" {
		words = append(words, "“"+r.claimed.Purpose+"”")
	}
	if row.OperationID != "" && (row.Kind == "recovered" || row.Kind == "queued" || r.outcome.State == "indeterminate") {
		words = append(words, row.OperationID)
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	return approval.Escape(strings.Join(words, "  "), 200)
}

// ofIntent leads from an outcome to what was asked.
func (p *Rows) ofIntent(row ledger.Row) string {
	if n, ok := p.intents[row.OperationID]; ok {
		return fmt.Sprintf("of %d:", n)
	}
	return row.OperationID
}

// decided is a decision, by the words that stand on its card.
func (r rowParts) decided() []string {
	if r.outcome.Choice == "" {
		return nil
	}
	choice := r.outcome.Choice
	if !r.granted.Until.IsZero() {
		choice = "until " + r.granted.Until.Local().Format("15:04")
	}
	words := []string{choice, strings.Join(r.granted.Capabilities, ", ")}
	switch p := r.verified.Proof; p.By {
	case approval.ByPasskey:
		words = append(words, "by passkey "+p.Name)
	case approval.ByTouchID:
		words = append(words, "by Touch ID key "+p.Name)
	case approval.ByClick:
		words = append(words, "by a click")
	}
	if r.request.ApprovalID != "" {
		words = append([]string{strings.ToUpper(approval.Tag(r.request.ApprovalID))}, words...)
	}
	return words
}

func (r rowParts) asked() []string {
	a := r.request.Action
	switch {
	case a == nil:
		return nil
	case a.HTTP != nil:
		return []string{a.Capability, a.HTTP.Method + " " + a.HTTP.Path}
	case a.SSH != nil:
		return []string{a.Capability, a.SSH.Command}
	case a.Copy != nil:
		return []string{a.Capability, "copy " + a.Copy.Direction + " " + a.Copy.Remote}
	}
	return []string{a.Capability}
}

func (r rowParts) came() []string {
	var words []string
	switch res := r.outcome.Result; {
	case res.Status != 0:
		words = append(words, "HTTP "+strconv.Itoa(res.Status))
		if res.Size != nil {
			words = append(words, HowMany(int(*res.Size), "byte"))
		}
	case res.Exit.Status != nil:
		words = append(words, "exit "+strconv.Itoa(*res.Exit.Status))
	default:
		words = append(words, res.Exit.Signal, res.Error)
	}
	return append(words, r.outcome.State, r.outcome.EndReason, r.outcome.Code, r.outcome.Detail)
}

// headings are the tables that a difference is about.
func headings(difference string) []string {
	var all []string
	for line := range strings.Lines(difference) {
		if !strings.HasPrefix(line, " ") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}
