package doctor

import (
	"fmt"
	"net/url"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// brokerFindings are about the process that listens: who it is, what it says of
// itself, and how well it keeps its memory.
func brokerFindings(s Subject, r *Running) []Finding {
	if r == nil {
		return nil // the endpoint's finding says why
	}
	return append([]Finding{identityFinding(s, r), serviceFinding(r.PID)}, closedFindings(r.PID, consolePort(s.Broker))...)
}

// consolePort is the port of the console that the broker says it has.
func consolePort(st *wire.Status) string {
	if st == nil {
		return ""
	}
	u, err := url.Parse(st.Console)
	if err != nil {
		return ""
	}
	return u.Port()
}

func identityFinding(s Subject, r *Running) Finding {
	who := fmt.Sprintf("process %d listens", r.PID)
	switch {
	case r.Hidden:
		who += " (it keeps its program from this account, as a broker does)"
	default:
		who += " and runs " + approval.Printable(r.Program)
	}
	st := s.Broker
	if st == nil {
		return bad("broker", who+"; it did not say how it is", NoStatus)
	}
	who += fmt.Sprintf("; broker %s, instance %s, profile %s, %s", approval.Printable(st.BrokerVersion), approval.Printable(st.BrokerInstance),
		approval.Printable(st.Profile), approval.Printable(st.State))
	switch {
	case st.BrokerVersion != s.Version:
		return weaker("broker", who+"; this yett is "+s.Version, OtherVersion)
	case st.State != "ready":
		return weaker("broker", who, BrokerLocked)
	}
	return good("broker", who)
}

// programFindings are about the two programs on disk, and whether the running
// broker is still the one that lies there.
func programFindings(s Subject, r *Running) []Finding {
	var all []Finding
	for _, name := range []string{ownProgram, shimProgram} {
		all = append(all, programFinding(name))
	}
	switch {
	case r == nil:
		return all
	case r.Replaced || s.Broker != nil && s.Broker.UpdateWaiting:
		return append(all, weaker("program_on_disk", "another yett lies on disk than the one that runs as the broker", ProgramReplaced))
	case r.Hidden && s.Broker == nil:
		return append(all, weaker("program_on_disk", "whether it is the one that runs is not told: the broker did not say", SystemUnknown))
	}
	return append(all, good("program_on_disk", "the broker runs the yett that lies there"))
}

func programFinding(name string) Finding {
	path, _, _, err := endpoint.Installed(name)
	check := "program_" + map[string]string{ownProgram: "yett", shimProgram: "yett_mcp"}[name]
	if err != nil {
		return bad(check, approval.Printable(err.Error()), ProgramMissing)
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			return bad(check, approval.Printable(err.Error()), ProgramMissing)
		}
		sticky := st.Mode&unix.S_ISVTX != 0
		if owner := int(st.Uid); st.Mode&0o022 != 0 && !sticky || owner != 0 && owner != unix.Getuid() {
			return bad(check, fmt.Sprintf("%s belongs to uid %d, mode %04o: others can change it", approval.Printable(p), owner, st.Mode&0o7777), ProgramOpen)
		}
	}
	n := lookAt(path)
	return good(check, n.String())
}
