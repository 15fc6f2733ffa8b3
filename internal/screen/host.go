package screen

import (
	"fmt"
	"io"

	"github.com/yett-broker/yett/internal/approval"
)

// host prints how an SSH host is known, and what leads to it.
func host(w io.Writer, c approval.Capability) {
	for _, h := range c.Via {
		fmt.Fprintf(w, "    over %s\n", h.Target)
		for _, k := range h.HostKeys {
			fmt.Fprintf(w, "      host key %s\n", k)
		}
	}
	for _, k := range c.HostKeys {
		fmt.Fprintf(w, "    host key %s\n", k)
	}
}
