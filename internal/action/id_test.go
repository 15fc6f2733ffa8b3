package action

import (
	"strings"
	"testing"
	"time"
)

func TestIDsAreDistinctAndOrdered(t *testing.T) {
	seen := map[string]bool{}
	at := time.Unix(1_800_000_000, 0)
	last := ""
	for i := range 1000 {
		id := NewOrderedID("op_", at.Add(time.Duration(i)*time.Millisecond))
		if seen[id] || !strings.HasPrefix(id, "op_") || len(id) != len("op_")+10+32 {
			t.Fatalf("id %q", id)
		}
		if id[:13] <= last {
			t.Fatalf("%q does not come after %q", id[:13], last)
		}
		seen[id], last = true, id[:13]
	}
	if a, b := NewID("s_"), NewID("s_"); a == b || len(a) != 34 {
		t.Fatalf("%q, %q", a, b)
	}
}
