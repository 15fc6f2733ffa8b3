// Package doctor looks at what an installation of Yett stands on: the system,
// the files, the endpoint, the broker that listens and the clients that were
// told of it. It only looks. It makes, changes and removes no file, opens no
// file that a broker locks, and sends nothing to the broker: what the broker
// says of itself is asked by the caller and handed in.
//
// It trusts the kernel and the file system to say what is there, and believes
// nothing that lies in a file further than that it lies there. What could not
// be read is a finding of its own, never a good one.
//
// A finding is a fact and a cause; what to do about a cause is said by whoever
// speaks to the person.
package doctor

import (
	"context"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// Level is how much a finding matters.
type Level int

// Good needs nothing. Weaker works, but something protects less or is
// missing that a person may want to know of. Bad does not work or is unsafe.
const (
	Good Level = iota
	Weaker
	Bad
)

// Cause names why a finding is not good, for advice.
type Cause string

// Finding is one thing that was looked at.
type Finding struct {
	Check string
	Level Level
	Found string
	Cause Cause // "" if the finding is good
}

// Subject is what is looked at.
type Subject struct {
	Location endpoint.Location
	Version  string // of the program that looks
	// Broker is what the broker answered to broker.status; nil if there was no
	// answer.
	Broker *wire.Status
	// Accounts are the home directories whose clients are looked at, and Project
	// the directory whose own configuration is.
	Accounts []string
	Project  string
	Clients  []ClientFile
}

// Report is what was found, and the endpoint and the running broker as facts.
type Report struct {
	Findings []Finding
	Endpoint Endpoint
	Running  *Running // nil if nobody was proven to listen
}

// OK reports whether nothing is bad.
func (r Report) OK() bool {
	for _, f := range r.Findings {
		if f.Level == Bad {
			return false
		}
	}
	return true
}

// Examine looks at everything.
func Examine(ctx context.Context, s Subject) Report {
	var r Report
	r.Endpoint, r.Running = LookAtEndpoint(ctx, s.Location)
	add := func(fs ...Finding) { r.Findings = append(r.Findings, fs...) }

	add(r.Endpoint.findings()...)
	add(brokerFindings(s, r.Running)...)
	add(programFindings(s, r.Running)...)
	add(clientFindings(s)...)
	add(homeFindings(s.Location.Home)...)
	add(vaultFindings(s.Location.Home)...)
	add(ledgerFindings(ctx, s.Location.Home, s.Broker)...)
	add(diskFindings(s.Location.Home)...)
	add(clockFinding(s.Location.Home))
	add(proxyFindings()...)
	add(systemFindings(r.Running)...)
	return r
}

func good(check, found string) Finding { return Finding{Check: check, Found: found} }

func weaker(check, found string, cause Cause) Finding {
	return Finding{Check: check, Level: Weaker, Found: found, Cause: cause}
}

func bad(check, found string, cause Cause) Finding {
	return Finding{Check: check, Level: Bad, Found: found, Cause: cause}
}

// shimProgram and ownProgram are the two programs, which lie in one directory.
const (
	ownProgram  = "yett"
	shimProgram = "yett-mcp"
)
