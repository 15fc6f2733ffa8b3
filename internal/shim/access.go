package shim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/client"
)

// accessList words what list_access found.
func accessList(list client.AccessListResult) *mcp.CallToolResult {
	if len(list.Capabilities) == 0 {
		return text(false, "There are no capabilities. The person adds them to the access file: yett apply FILE.")
	}
	var granted []string
	for _, a := range list.Capabilities {
		if a.Granted {
			granted = append(granted, a.Capability)
		}
	}
	count := "1 capability"
	if n := len(list.Capabilities); n > 1 {
		count = fmt.Sprintf("%d capabilities", n)
	}
	status := count + " can be asked for; none is granted to this session yet. Next: request_access with what you need."
	if len(granted) > 0 {
		status = count + " can be asked for; granted to this session: " + strings.Join(granted, ", ") + "."
	}
	return text(false, status, compact(list))
}

// accessResult words what became of request_access.
func accessResult(r client.SessionResult, asked []string) *mcp.CallToolResult {
	var wanted, missing []string
	for _, w := range asked {
		if slices.Contains(wanted, w) {
			continue
		}
		wanted = append(wanted, w)
		if !slices.Contains(r.Capabilities, w) {
			missing = append(missing, w)
		}
	}
	switch {
	case r.Pending != nil:
		lines := []string{"pending: a person must decide on " + strings.Join(wanted, ", ") + ". Nothing is granted yet."}
		lines = append(lines, pendingLines(r.Pending)...)
		lines = append(lines, "Next: call request_access again with the same capabilities to go on waiting; it shows no second card.")
		return text(false, append(lines, compact(r))...)
	case len(missing) == 0:
		return text(false, "granted: "+strings.Join(wanted, ", ")+". Next: "+actsBy(wanted)+".", compact(r))
	case r.Reason != nil:
		return failure(r.Reason.Code, r.Reason.Message, r.Reason.NextStep, "Not granted: "+strings.Join(missing, ", ")+".", compact(r))
	}
	return failure("not_granted", "This session does not have "+strings.Join(missing, ", ")+".",
		"Call request_access again if it is still needed; a person decides.", compact(r))
}

// actsBy names the tools for capabilities, by their kinds.
func actsBy(capabilities []string) string {
	var names []string
	for _, c := range capabilities {
		kind, _, _ := strings.Cut(c, ":")
		name, ok := map[string]string{"http": "http_request", "ssh": "ssh_run", "ssh-copy": "ssh_copy"}[kind]
		if ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " or ")
}
