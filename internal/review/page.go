// Package review says what is in force now: as one page, of which each fact names
// where it was read, and as a matrix of which process can do what with which
// credential, and what ends that. It reads nothing by itself: whoever asks gives
// the answers of the broker, of the system and of the ledger.
package review

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/doctor"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// Fact is one sentence of the page, and where it was read.
type Fact struct {
	Fact string `json:"fact"`
	From string `json:"from"`
}

// Topic is a part of the page.
type Topic struct {
	Topic string `json:"topic"`
	Facts []Fact `json:"facts"`
}

// Page is the review: eight topics, each from what is in force now.
func (r *Facts) Page() []Topic {
	return []Topic{
		{"Unit of authorization", r.units()},
		{"Caller evidence", r.evidence()},
		{"Session begin and end", r.ends()},
		{"Endpoint ownership", r.ownership()},
		{"After a crash", r.crash()},
		{"After an update", r.update()},
		{"Audit record", r.record()},
		{"Other software of this account", r.limits()},
	}
}

// Where facts come from.
const (
	fromBroker   = "the broker"
	fromSessions = "its sessions"
	fromAccess   = "the applied access file"
	fromKernel   = "the kernel"
	fromFiles    = "the file system"
	fromLedger   = "the ledger's files"
)

// live are the sessions that have not ended, of those that may be read.
func (r *Facts) live() []wire.Session {
	return slices.DeleteFunc(slices.Clone(r.Sessions.Items), func(s wire.Session) bool { return s.State == string(session.Ended) })
}

func (r *Facts) units() []Fact {
	units := map[string]int{}
	for _, s := range r.live() {
		units[string(s.Unit)]++
	}
	facts := []Fact{{fmt.Sprintf("%s, %d of them paused, %s waiting", screen.HowMany(r.Status.Sessions, "live session"), r.Status.Paused, screen.HowMany(r.Status.Pending, "card")), fromBroker}}
	if len(units) > 0 {
		facts = append(facts, Fact{"Each covers " + counted(units, "one %s"), fromSessions})
	}
	asks := map[string]int{}
	for _, c := range r.Access {
		asks[c.Confirm]++
	}
	switch {
	case r.Status.State == "locked":
		facts = append(facts, Fact{"Yett is locked: nothing is granted, and nothing can be", fromBroker})
	case len(asks) == 0:
		facts = append(facts, Fact{"No capability is applied: nothing can be granted", fromAccess})
	default:
		facts = append(facts, Fact{fmt.Sprintf("%s can be granted; with a card for the session: %d, with one for each action: %d",
			screen.HowMany(len(r.Access), "capability"), asks["session"], asks["each"]), fromAccess})
	}
	if r.Status.State != "locked" {
		facts = append(facts, Fact{r.approvers(), fromBroker})
	}
	return facts
}

// approvers says by what a person may prove here.
func (r *Facts) approvers() string {
	said := "A yes is proven by the passphrase or the recovery code"
	n := len(r.Passkeys.Items) + r.Passkeys.Hidden
	if n == 0 {
		return said + "; there is no passkey"
	}
	said += ", or by the signature of " + screen.HowMany(n, "key")
	var names []string
	for _, k := range r.Passkeys.Items {
		names = append(names, approval.Escape(screen.KeyName(k), 64))
	}
	if len(names) > 0 {
		said += ": " + strings.Join(names, ", ")
	}
	return said
}

// maxListed keeps the page a page.
const maxListed = 8

func (r *Facts) evidence() []Fact {
	facts := []Fact{}
	if run := r.Report.Running; run != nil {
		way := "by pid and start time"
		if run.Pidfs {
			way = "by a number of the kernel's that is never given twice between two boots"
		}
		facts = append(facts, Fact{"The kernel names the process behind each connection, and tells it from others " + way, fromKernel})
	}
	live := r.live()
	for _, s := range live[:min(len(live), maxListed)] {
		k := s.Caller.Subject().Kernel
		who := fmt.Sprintf("%s: process %d, %s, asking %s", s.SessionID, k.PID, approval.Escape(screen.Program(k.ExePath), 100), wayOf(s.Caller))
		if d := s.Caller.Subject().Filesystem.SHA256; d != "" {
			who += ", SHA-256 " + d[:min(len(d), 12)] + "…"
		}
		if words := s.Caller.Words; len(words) > 0 {
			who += ": " + approval.Escape(strings.Join(words, "; "), 200)
		}
		facts = append(facts, Fact{who, fromKernel})
	}
	facts = append(facts, r.more(len(live)-maxListed)...)
	for _, f := range r.Report.Findings {
		if slices.Contains([]string{"kernel", "user_namespaces", "ptrace_scope", "memory", "sandbox"}, f.Check) && f.Level != doctor.Good {
			facts = append(facts, Fact{sentenceStart(f.Found), fromKernel})
		}
	}
	return facts
}

// wayOf says how an agent speaks to the broker. What is out of the ordinary of
// its file stands among the words of the caller.
func wayOf(c action.Caller) string {
	if c.Agent != nil {
		return "through yett-mcp"
	}
	return "by itself"
}

// more counts the sessions that are not listed.
func (r *Facts) more(n int) []Fact {
	if n = max(n, 0) + r.Sessions.Hidden; n > 0 {
		return []Fact{{"Not listed here: " + screen.HowMany(n, "session") + " more, live or ended", fromSessions}}
	}
	return nil
}

func (r *Facts) ends() []Fact {
	facts := []Fact{}
	live := r.live()
	for _, s := range live[:min(len(live), maxListed)] {
		facts = append(facts, Fact{fmt.Sprintf("%s is %s: began %s, ends by %s, may use %s", s.SessionID, s.State, clock(s.BeganAt), clock(s.ExpiresAt),
			listOr(screen.GrantWords(s, clock), "nothing yet")), fromSessions})
	}
	ended := map[string]int{}
	for _, s := range r.Sessions.Items {
		if s.EndReason != "" {
			ended[s.EndReason]++
		}
	}
	if len(ended) > 0 {
		facts = append(facts, Fact{"Ended since the broker started: " + counted(ended, "%s"), fromSessions})
	}
	facts = append(facts, Fact{fmt.Sprintf("A session ends after %s, or after %s without a word", screen.Span(session.MaxLife), screen.Span(session.IdleLife)), "this release, " + r.Version})
	if run := r.Report.Running; run != nil && len(run.Arguments) > 0 {
		facts = append(facts, Fact{pauses(run.Arguments, r.LockAfter), "the broker's command line"})
	}
	return facts
}

// pauses says what the broker was told about locking by itself.
func pauses(argv []string, usual time.Duration) string {
	after, asleep := screen.Span(usual), "true"
	for i, word := range argv {
		for flag, into := range map[string]*string{"--lock-after": &after, "--lock-on-suspend": &asleep} {
			if value, ok := strings.CutPrefix(word, flag+"="); ok {
				*into = value
			} else if word == flag && flag == "--lock-after" && i+1 < len(argv) {
				*into = argv[i+1]
			}
		}
	}
	say := "It locks by itself and pauses sessions after " + approval.Escape(after, 20) + " without use"
	if d, err := time.ParseDuration(after); err == nil && d == 0 {
		say = "It does not lock by itself for want of use"
	}
	if asleep != "true" {
		return say + ", and not before the machine sleeps"
	}
	return say + ", and before the machine sleeps"
}

func (r *Facts) ownership() []Fact {
	e := r.Report.Endpoint
	facts := []Fact{{fmt.Sprintf("Profile %s, home %s", approval.Printable(r.Status.Profile), approval.Printable(r.Status.Home)), fromBroker}}
	for _, n := range []*doctor.Node{e.Socket, e.Directory} {
		if n != nil {
			facts = append(facts, Fact{n.String(), fromFiles})
		}
	}
	for _, f := range r.Report.Findings {
		if f.Check == "broker" || f.Check == "service" || f.Check == "network" || f.Check == "endpoint" && f.Level != doctor.Good {
			facts = append(facts, Fact{sentenceStart(f.Found), fromKernel})
		}
	}
	return facts
}

func (r *Facts) crash() []Fact {
	facts := []Fact{}
	if run := r.Report.Running; run != nil && !run.Started.IsZero() {
		facts = append(facts, Fact{"This broker runs since " + clock(run.Started) + "; it knows no session from before", fromKernel})
	}
	facts = append(facts, Fact{"The ledger, which must take an intent before each action: " + approval.Printable(r.Status.Ledger), fromBroker})
	if r.Proven() {
		facts = append(facts, Fact{fmt.Sprintf("%s: %s, %s, %d settled after a crash, %s", r.newest(),
			screen.HowMany(r.Kinds["intent"], "intent"), screen.HowMany(r.Kinds["outcome"], "outcome"), r.Kinds["recovered"], screen.HowMany(r.Kinds["journal_torn"], "torn write")), fromLedger})
	}
	return facts
}

// newest says which rows were counted: all, or the last of many.
func (r *Facts) newest() string {
	if r.Audit != nil && r.Audit.Entries > NewestRows {
		return fmt.Sprintf("In the newest %d rows", NewestRows)
	}
	return "In all rows"
}

func (r *Facts) update() []Fact {
	path, _, _, err := endpoint.Installed("yett")
	facts := []Fact{{fmt.Sprintf("The broker is %s, this yett %s", approval.Printable(r.Status.BrokerVersion), r.Version), fromBroker}}
	switch {
	case err != nil:
		facts = append(facts, Fact{sentenceStart(approval.Printable(err.Error())), fromFiles})
	case r.Status.UpdateWaiting:
		facts = append(facts, Fact{"Another yett lies at " + approval.Printable(path) + " than the one that runs: it takes effect at the next start", fromBroker})
	default:
		facts = append(facts, Fact{"The broker runs the yett that lies at " + approval.Printable(path), fromBroker})
	}
	shim, dev, ino, err := endpoint.Installed("yett-mcp")
	if err != nil {
		return append(facts, Fact{sentenceStart(approval.Printable(err.Error())), fromFiles})
	}
	same, older := 0, 0
	for _, s := range r.live() {
		switch k := s.Caller.Peer.Kernel; {
		case s.Caller.Role != wire.RoleShim:
		case k.ExeDevice == dev && k.ExeInode == ino:
			same++
		default:
			older++
		}
	}
	return append(facts, Fact{fmt.Sprintf("Live sessions by the yett-mcp that lies at %s: %d; by one that was replaced since: %d", approval.Printable(shim), same, older), fromKernel})
}

func (r *Facts) record() []Fact {
	if r.AuditErr != nil {
		return []Fact{{"The ledger could not be checked: " + approval.Printable(r.AuditErr.Error()), fromLedger}}
	}
	facts := []Fact{{fmt.Sprintf("%s, root %s", screen.HowMany(int(r.Audit.Entries), "row"), r.Audit.RootHash), fromLedger}}
	state := "Structure, numbers and hashes are in order"
	if !r.Audit.OK {
		state = fmt.Sprintf("%s, the first: %s", screen.HowMany(len(r.Audit.Problems), "problem"), approval.Printable(r.Audit.Problems[0]))
	}
	facts = append(facts, Fact{state, fromLedger})
	if r.Proven() {
		facts = append(facts, Fact{fmt.Sprintf("%s: %s, %s denied, %s", r.newest(),
			screen.HowMany(r.Kinds["decision"], "decision"), screen.HowMany(r.Kinds["denied"], "action"), screen.HowMany(r.Kinds["refused"], "refusal")), fromLedger})
	}
	return facts
}

// limits is the one sentence on what the profile does not stop.
func (r *Facts) limits() []Fact {
	if r.Status.Profile != r.Profile {
		return []Fact{{"This yett knows no profile " + approval.Printable(r.Status.Profile) + " and cannot say what it does not stop", fromBroker}}
	}
	return []Fact{{r.Limits, "profile " + r.Status.Profile}}
}

// counted writes counts by name, in the order of the names.
func counted(counts map[string]int, format string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf(format+" (%d)", approval.Printable(name), counts[name]))
	}
	return strings.Join(parts, ", ")
}

func listOr(list []string, none string) string {
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ", ")
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func sentenceStart(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
