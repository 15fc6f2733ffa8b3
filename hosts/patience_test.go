//go:build hosts && patience && linux

package hosts

import (
	"flag"
	"os"
	"syscall"
	"testing"
	"time"
)

var patience = flag.Duration("patience", 9*time.Minute, "how long a host may wait for a tool")

func init() { lifetime = 15 * time.Minute }

// TestHosts_Patience sees how long each host waits for a tool that does not
// answer: yett-mcp is stopped when its card waits. It fails where a host
// gives up before yett-mcp's longest call would have come back, and logs what
// it saw. It takes minutes and has a build tag of its own:
//
//	go test -tags hosts,patience -timeout 15m -parallel 4 -run Patience -v ./hosts
func TestHosts_Patience(t *testing.T) {
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			b, _ := upstream(t)
			r := h.start(t, yettMCP(b), askAccess)
			seen := look(t, b, r, waitCard(t, b, r))
			shim, err := os.FindProcess(seen.pids[len(seen.pids)-1])
			must(t, err)
			t.Cleanup(func() { shim.Kill() }) // stopped, it notices no end
			must(t, shim.Signal(syscall.SIGSTOP))
			begun := time.Now()
			for len(r.model.Results()) == 0 {
				select {
				case <-r.done:
					t.Fatalf("the host ended after %v", time.Since(begun))
				case <-time.After(time.Second):
				}
				if time.Since(begun) > *patience {
					t.Logf("%s still waits after %v", h.name, *patience)
					return
				}
			}
			gaveUp := time.Since(begun).Round(time.Second)
			t.Logf("%s gave up after %v; its model was told %+v", h.name, gaveUp, r.model.Results())
			if gaveUp < 55*time.Second {
				t.Error("that is shorter than a call of yett-mcp may take")
			}
		})
	}
}
