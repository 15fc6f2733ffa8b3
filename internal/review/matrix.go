package review

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// Matrix is which process can do what with which stored credential, and what
// ends that. Every process meets every credential.
type Matrix struct {
	Proven      bool     `json:"proven"`
	Processes   []string `json:"processes"`
	Credentials []string `json:"credentials"`
	Cells       []Cell   `json:"cells"`

	Locked bool `json:"-"`
}

// Cell is one process, one credential and one operation with it.
type Cell struct {
	Process    string   `json:"process"`
	Credential string   `json:"credential"`
	Capability string   `json:"capability"` // "" where no operation is possible
	Operation  string   `json:"operation"`
	Access     string   `json:"access"`
	Ends       []string `json:"ends"`
}

// Processes that are there without a session.
const (
	commandLine    = "yett, the command line"
	unapproved     = "a process of this account without a session"
	anotherAccount = "a process of another account"
)

// use is what a credential is for: a capability and what it allows.
type use struct {
	name, operation string
	each            bool
	unset           bool // the credential has no value yet
}

func NewMatrix(r *Facts) Matrix {
	m := Matrix{Proven: r.Proven(), Locked: r.Status.State == "locked", Processes: []string{}, Credentials: []string{}}
	uses := r.uses()
	for name := range uses {
		m.Credentials = append(m.Credentials, name)
	}
	slices.Sort(m.Credentials)
	row := func(process string, make func(credential string, u use) Cell) {
		m.Processes = append(m.Processes, process)
		for _, name := range m.Credentials {
			for _, u := range uses[name] {
				c := make(name, u)
				c.Process, c.Credential, c.Capability = process, name, u.name
				m.Cells = append(m.Cells, c)
			}
		}
	}
	command := func() { // it does the same with a credential, whatever that is for
		m.Processes = append(m.Processes, commandLine)
		for _, name := range m.Credentials {
			m.Cells = append(m.Cells, commandCell(name))
		}
	}
	for _, s := range r.live() {
		row(processOf(s), func(_ string, u use) Cell { return sessionCell(s, u) })
	}
	if r.Sessions.Hidden > 0 {
		row(screen.HowMany(r.Sessions.Hidden, "session")+" that your proof would show", func(_ string, u use) Cell {
			return Cell{Operation: u.operation, Access: "not shown", Ends: sessionEnds}
		})
	}
	command()
	row(unapproved, func(_ string, u use) Cell {
		return Cell{Operation: u.operation, Access: "none: it needs a session, and your yes on a card", Ends: []string{"nothing to end"}}
	})
	row(anotherAccount, func(_ string, u use) Cell {
		return Cell{Operation: u.operation, Access: r.strangers(), Ends: []string{"nothing to end"}}
	})
	return m
}

// uses are what each stored credential is for. Without a proof the names of
// credentials are not shown, and all capabilities stand beside their number.
func (r *Facts) uses() map[string][]use {
	all := map[string][]use{}
	if r.Policy == nil {
		if r.Secrets.Hidden > 0 {
			name := screen.HowMany(r.Secrets.Hidden, "credential") + " that your proof would show"
			for _, c := range r.Access {
				all[name] = append(all[name], use{name: c.Capability,
					operation: operationOf(scope{c.Methods, c.Paths, c.Commands, c.Direction, c.Remote, c.Local}, c.Target), each: c.Confirm == access.ConfirmEach})
			}
			if len(all[name]) == 0 {
				all[name] = []use{{operation: "none: Yett is locked, or no capability is applied"}}
			}
		}
		return all
	}
	for _, s := range r.Secrets.Items {
		name := s.Name
		for _, c := range r.Policy.Capabilities() {
			credential, target := c.Credential, s.Place
			if c.Host != "" {
				h, _ := r.Policy.Host(c.Host) // a policy names only what it has
				credential, target = h.Key, h.String()
				for _, hop := range r.Policy.Way(c.Host) {
					target += " over " + hop.String()
					if hop.Key == s.Name && hop.Key != h.Key {
						all[name] = append(all[name], use{name: c.Name, operation: "opens the way over " + hop.String() + " to " + h.String(), each: c.Confirm == access.ConfirmEach})
					}
				}
			}
			if credential == s.Name {
				all[name] = append(all[name], use{name: c.Name,
					operation: operationOf(scope{c.Methods, c.Paths, c.Commands, c.Direction, c.Remote, c.Local}, target), each: c.Confirm == access.ConfirmEach})
			}
		}
		if len(all[name]) == 0 {
			all[name] = []use{{operation: "none: no capability uses it"}}
		}
		for i := range all[name] {
			all[name][i].unset = !s.Set
		}
	}
	return all
}

// scope is what a capability allows, of whatever kind it is.
type scope struct {
	methods, paths, commands []string
	direction                string
	remote, local            []string
}

func operationOf(s scope, target string) string {
	text := strings.Join(s.methods, ", ") + " " + strings.Join(s.paths, " or ") + " at " + target
	switch {
	case len(s.commands) > 0:
		text = "run " + strings.Join(s.commands, " or ") + " on " + target
	case s.direction != "":
		text = "copy " + screen.Direction(s.direction) + ": " + strings.Join(s.remote, " or ") + " of " + target +
			" and files in " + strings.Join(s.local, " or ")
	}
	return approval.Printable(text)
}

func processOf(s wire.Session) string {
	k := s.Caller.Subject().Kernel
	return fmt.Sprintf("%s, process %d (%s)", approval.Escape(screen.Program(k.ExePath), 100), k.PID, s.SessionID)
}

// sessionEnds are the events that end every session.
var sessionEnds = []string{"the process exits", "its connection closes", "its program or connection changes hands", "yett revoke", "yett lock",
	"yett stop or an end of the broker", "silence for " + screen.Span(session.IdleLife)}

func sessionCell(s wire.Session, u use) Cell {
	i := slices.IndexFunc(s.Grants, func(g wire.Granted) bool { return g.Capability == u.name })
	last := s.ExpiresAt
	if i >= 0 {
		last = s.Grants[i].Until
	}
	c := Cell{Operation: u.operation, Ends: append(slices.Clone(sessionEnds), "at the latest "+clock(last))}
	switch granted := i >= 0; {
	case u.name == "":
		c.Access, c.Ends = "none", []string{"nothing to end"}
		return c
	case s.State == string(session.Paused):
		c.Access = "paused until you unlock"
	case granted && s.Grants[i].Once:
		c.Access = "granted for one action, until " + clock(last) + " at the latest"
		c.Ends = append([]string{"that one action"}, c.Ends...)
	case granted && u.each:
		c.Access = "granted, until " + clock(last) + " at the latest; each action is asked for"
	case granted:
		c.Access = "granted, until " + clock(last) + " at the latest"
	case s.State == string(session.Pending):
		c.Access = "none yet: a card waits for you"
	default:
		c.Access = "none; it may ask, and you decide on a card"
	}
	if u.unset {
		c.Access += "; the credential has no value yet"
	}
	c.Ends = append(c.Ends, "yett apply, if it changes "+u.name)
	return c
}

// commandCell: no command uses or shows a value.
func commandCell(name string) Cell {
	return Cell{Process: commandLine, Credential: name, Operation: "set, rotate or remove the value of " + name + "; no command uses or shows it", Access: "with your proof, each time",
		Ends: []string{"yett lock", "a new passphrase", "the command's end"}}
}

// strangers says what keeps other accounts out, as the file system has it.
func (r *Facts) strangers() string {
	d := r.Report.Endpoint.Directory
	if d == nil {
		return "none: there is no socket"
	}
	if d.Mode != "0700" {
		return fmt.Sprintf("it may reach the socket: its directory has mode %s; it gets no session, whose account is another", d.Mode)
	}
	return fmt.Sprintf("none: the socket lies in a directory of uid %d, mode %s", d.Owner, d.Mode)
}

// Missing names what the matrix leaves out: a process that meets a credential
// in no cell, or a cell that leaves something unsaid.
func (m Matrix) Missing() []string {
	var gaps []string
	for _, p := range m.Processes {
		for _, c := range m.Credentials {
			if !slices.ContainsFunc(m.Cells, func(x Cell) bool { return x.Process == p && x.Credential == c }) {
				gaps = append(gaps, p+" and "+c)
			}
		}
	}
	for _, x := range m.Cells {
		if x.Operation == "" || x.Access == "" || len(x.Ends) == 0 {
			gaps = append(gaps, x.Process+" and "+x.Credential+": unsaid")
		}
	}
	return gaps
}

// Table is the matrix as rows of text.
func (m Matrix) Table() (columns []string, rows [][]string) {
	for _, c := range m.Cells {
		operation := c.Operation
		if c.Capability != "" && c.Process != commandLine {
			operation = c.Capability + ": " + operation
		}
		rows = append(rows, []string{c.Process, c.Credential, operation, c.Access, strings.Join(c.Ends, "; ")})
	}
	return []string{"process", "credential", "operation", "access now", "what ends it"}, rows
}

// Write writes the matrix in Markdown.
func (m Matrix) Write(w io.Writer) {
	columns, rows := m.Table()
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, cells := range rows {
		for i := range cells {
			cells[i] = strings.ReplaceAll(approval.Printable(cells[i]), "|", `\|`)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	if len(m.Cells) == 0 && m.Locked {
		fmt.Fprintln(w, "| none | not told while Yett is locked | none | none | nothing to end |")
	} else if len(m.Cells) == 0 {
		fmt.Fprintln(w, "| none | no credential is stored | none | none | nothing to end |")
	}
}
