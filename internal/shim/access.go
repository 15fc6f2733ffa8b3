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
	status := fmt.Sprintf("%d capabilities can be asked for; none is granted to this session yet. Next: request_access with the ones you need.", len(list.Capabilities))
	if len(granted) > 0 {
		status = fmt.Sprintf("%d capabilities can be asked for; granted to this session: %s.", len(list.Capabilities), strings.Join(granted, ", "))
	}
	return text(false, status, compact(list))
}

// accessResult words what became of request_access.
func accessResult(r client.SessionResult, wanted []string) *mcp.CallToolResult {
	var missing []string
	for _, w := range wanted {
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
		return text(false, "granted: "+strings.Join(wanted, ", ")+". Next: http_request or ssh_run.", compact(r))
	case r.Reason != nil:
		return failure(r.Reason.Code, r.Reason.Message, r.Reason.NextStep, "Not granted: "+strings.Join(missing, ", ")+".", compact(r))
	}
	return failure("not_granted", "This session does not have "+strings.Join(missing, ", ")+".",
		"Call request_access again if it is still needed; a person decides.", compact(r))
}
