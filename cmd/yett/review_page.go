package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/doctor"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// fact is one sentence of the page, and where it was read.
type fact struct {
	Fact string `json:"fact"`
	From string `json:"from"`
}

type topic struct {
	Topic string `json:"topic"`
	Facts []fact `json:"facts"`
}

// page is the review: eight topics, each from what is in force now.
func (r *reviewed) page() []topic {
	return []topic{
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
func (r *reviewed) live() []wire.Session {
	return slices.DeleteFunc(slices.Clone(r.sessions.Items), func(s wire.Session) bool { return s.State == string(session.Ended) })
}

func (r *reviewed) units() []fact {
	units := map[string]int{}
	for _, s := range r.live() {
		units[string(s.Unit)]++
	}
	facts := []fact{{fmt.Sprintf("%s, %d of them paused, %s waiting", screen.HowMany(r.status.Sessions, "live session"), r.status.Paused, screen.HowMany(r.status.Pending, "card")), fromBroker}}
	if len(units) > 0 {
		facts = append(facts, fact{"Each covers " + counted(units, "one %s"), fromSessions})
	}
	asks := map[string]int{}
	for _, c := range r.access {
		asks[c.Confirm]++
	}
	switch {
	case r.status.State == "locked":
		facts = append(facts, fact{"Yett is locked: nothing is granted, and nothing can be", fromBroker})
	case len(asks) == 0:
		facts = append(facts, fact{"No capability is applied: nothing can be granted", fromAccess})
	default:
		facts = append(facts, fact{fmt.Sprintf("%s can be granted; with a card for the session: %d, with one for each action: %d",
			screen.HowMany(len(r.access), "capability"), asks["session"], asks["each"]), fromAccess})
	}
	if r.status.State != "locked" {
		facts = append(facts, fact{r.approvers(), fromBroker})
	}
	return facts
}

// approvers says by what a person may prove here.
func (r *reviewed) approvers() string {
	said := "A yes is proven by the passphrase or the recovery code"
	n := len(r.passkeys.Items) + r.passkeys.Hidden
	if n == 0 {
		return said + "; there is no passkey"
	}
	said += ", or by the signature of " + screen.HowMany(n, "key")
	var names []string
	for _, k := range r.passkeys.Items {
		names = append(names, approval.Escape(nameOf(k), 64))
	}
	if len(names) > 0 {
		said += ": " + strings.Join(names, ", ")
	}
	return said
}

// maxListed keeps the page a page.
const maxListed = 8

func (r *reviewed) evidence() []fact {
	facts := []fact{}
	if run := r.report.Running; run != nil {
		way := "by pid and start time"
		if run.Pidfs {
			way = "by a number of the kernel's that is never given twice between two boots"
		}
		facts = append(facts, fact{"The kernel names the process behind each connection, and tells it from others " + way, fromKernel})
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
		facts = append(facts, fact{who, fromKernel})
	}
	facts = append(facts, r.more(len(live)-maxListed)...)
	for _, f := range r.report.Findings {
		if slices.Contains([]string{"kernel", "user_namespaces", "ptrace_scope", "memory", "sandbox"}, f.Check) && f.Level != doctor.Good {
			facts = append(facts, fact{sentenceStart(f.Found), fromKernel})
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
func (r *reviewed) more(n int) []fact {
	if n = max(n, 0) + r.sessions.Hidden; n > 0 {
		return []fact{{"Not listed here: " + screen.HowMany(n, "session") + " more, live or ended", fromSessions}}
	}
	return nil
}

func (r *reviewed) ends() []fact {
	facts := []fact{}
	live := r.live()
	for _, s := range live[:min(len(live), maxListed)] {
		facts = append(facts, fact{fmt.Sprintf("%s is %s: began %s, ends by %s, may use %s", s.SessionID, s.State, clock(s.BeganAt), clock(s.ExpiresAt),
			listOr(grantWords(s, clock), "nothing yet")), fromSessions})
	}
	ended := map[string]int{}
	for _, s := range r.sessions.Items {
		if s.EndReason != "" {
			ended[s.EndReason]++
		}
	}
	if len(ended) > 0 {
		facts = append(facts, fact{"Ended since the broker started: " + counted(ended, "%s"), fromSessions})
	}
	facts = append(facts, fact{fmt.Sprintf("A session ends after %s, or after %s without a word", span(session.MaxLife), span(session.IdleLife)), "this release, " + version})
	if run := r.report.Running; run != nil && len(run.Arguments) > 0 {
		facts = append(facts, fact{pauses(run.Arguments), "the broker's command line"})
	}
	return facts
}

// pauses says what the broker was told about locking by itself.
func pauses(argv []string) string {
	after, asleep := span(lockAfter), "true"
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

func (r *reviewed) ownership() []fact {
	e := r.report.Endpoint
	facts := []fact{{fmt.Sprintf("Profile %s, home %s", approval.Printable(r.status.Profile), approval.Printable(r.status.Home)), fromBroker}}
	for _, n := range []*doctor.Node{e.Socket, e.Directory} {
		if n != nil {
			facts = append(facts, fact{n.String(), fromFiles})
		}
	}
	for _, f := range r.report.Findings {
		if f.Check == "broker" || f.Check == "service" || f.Check == "network" || f.Check == "endpoint" && f.Level != doctor.Good {
			facts = append(facts, fact{sentenceStart(f.Found), fromKernel})
		}
	}
	return facts
}

func (r *reviewed) crash() []fact {
	facts := []fact{}
	if run := r.report.Running; run != nil && !run.Started.IsZero() {
		facts = append(facts, fact{"This broker runs since " + clock(run.Started) + "; it knows no session from before", fromKernel})
	}
	facts = append(facts, fact{"The ledger, which must take an intent before each action: " + approval.Printable(r.status.Ledger), fromBroker})
	if r.proven() {
		facts = append(facts, fact{fmt.Sprintf("%s: %s, %s, %d settled after a crash, %s", r.newest(),
			screen.HowMany(r.kinds["intent"], "intent"), screen.HowMany(r.kinds["outcome"], "outcome"), r.kinds["recovered"], screen.HowMany(r.kinds["journal_torn"], "torn write")), fromLedger})
	}
	return facts
}

// newest says which rows were counted: all, or the last of many.
func (r *reviewed) newest() string {
	if r.audit != nil && r.audit.Entries > newestRows {
		return fmt.Sprintf("In the newest %d rows", newestRows)
	}
	return "In all rows"
}

func (r *reviewed) update() []fact {
	path, _, _, err := endpoint.Installed("yett")
	facts := []fact{{fmt.Sprintf("The broker is %s, this yett %s", approval.Printable(r.status.BrokerVersion), version), fromBroker}}
	switch {
	case err != nil:
		facts = append(facts, fact{sentenceStart(approval.Printable(err.Error())), fromFiles})
	case r.status.UpdateWaiting:
		facts = append(facts, fact{"Another yett lies at " + approval.Printable(path) + " than the one that runs: it takes effect at the next start", fromBroker})
	default:
		facts = append(facts, fact{"The broker runs the yett that lies at " + approval.Printable(path), fromBroker})
	}
	shim, dev, ino, err := endpoint.Installed("yett-mcp")
	if err != nil {
		return append(facts, fact{sentenceStart(approval.Printable(err.Error())), fromFiles})
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
	return append(facts, fact{fmt.Sprintf("Live sessions by the yett-mcp that lies at %s: %d; by one that was replaced since: %d", approval.Printable(shim), same, older), fromKernel})
}

func (r *reviewed) record() []fact {
	if r.auditErr != nil {
		return []fact{{"The ledger could not be checked: " + approval.Printable(r.auditErr.Error()), fromLedger}}
	}
	facts := []fact{{fmt.Sprintf("%s, root %s", screen.HowMany(int(r.audit.Entries), "row"), r.audit.RootHash), fromLedger}}
	state := "Structure, numbers and hashes are in order"
	if !r.audit.OK {
		state = fmt.Sprintf("%s, the first: %s", screen.HowMany(len(r.audit.Problems), "problem"), approval.Printable(r.audit.Problems[0]))
	}
	facts = append(facts, fact{state, fromLedger})
	if r.proven() {
		facts = append(facts, fact{fmt.Sprintf("%s: %s, %s denied, %s", r.newest(),
			screen.HowMany(r.kinds["decision"], "decision"), screen.HowMany(r.kinds["denied"], "action"), screen.HowMany(r.kinds["refused"], "refusal")), fromLedger})
	}
	return facts
}

// limits is the one sentence on what the profile does not stop.
func (r *reviewed) limits() []fact {
	if r.status.Profile != broker.Profile {
		return []fact{{"This yett knows no profile " + approval.Printable(r.status.Profile) + " and cannot say what it does not stop", fromBroker}}
	}
	return []fact{{broker.Limits, "profile " + r.status.Profile}}
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

// span writes a duration without the units that are zero.
func span(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func sentenceStart(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
