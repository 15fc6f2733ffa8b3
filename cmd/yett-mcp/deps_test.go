package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The shim holds no secret and no policy: none of this is linked in.
func TestB7_ShimReachesNoVaultAndNoPolicy(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list names %d packages", len(deps))
	}
	const ours = "github.com/yett-broker/yett/"
	allowed := map[string]bool{}
	for _, p := range []string{"cmd/yett-mcp", "client", "internal/action", "internal/endpoint", "internal/peer", "internal/shim", "internal/wire"} {
		allowed[ours+p] = true
	}
	for _, d := range deps {
		if strings.HasPrefix(d, ours) && !allowed[d] {
			t.Errorf("yett-mcp links %s", d)
		}
	}
}
