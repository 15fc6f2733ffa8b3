package ledger

import (
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

// TestOnlyRecoveryIsTaken: a run that was never unlocked may settle an
// operation as recovery does, and change no other column with it.
func TestOnlyRecoveryIsTaken(t *testing.T) {
	base := columns{id: "op", session: "s", caller: "c", digest: []byte("d"), idem: []byte("i"), unsafe: 1, budgetKey: []byte("b"), lastRow: 3, at: 1}
	for from, to := range map[action.State]action.State{action.Queued: action.Denied, action.Executing: action.Indeterminate} {
		was := base
		was.state = string(from)
		if from == action.Executing {
			was.intent, was.began = 3, 1
		}
		is := was
		is.state, is.code, is.lastRow = string(to), codeRestarted, 9
		if _, _, err := undone(change{was.encode(), is.encode()}, 9); err != nil {
			t.Errorf("recovery of %s: %v", from, err)
		}
		for name, spoil := range map[string]func(c *columns){
			"id":         func(c *columns) { c.id = "x" },
			"state":      func(c *columns) { c.state = string(action.Completed) },
			"code":       func(c *columns) { c.code = "x" },
			"session":    func(c *columns) { c.session = "x" },
			"caller":     func(c *columns) { c.caller = "x" },
			"digest":     func(c *columns) { c.digest = []byte("x") },
			"idem":       func(c *columns) { c.idem = nil },
			"unsafe":     func(c *columns) { c.unsafe = 0 },
			"intent":     func(c *columns) { c.intent++ },
			"last_row":   func(c *columns) { c.lastRow-- },
			"resolved":   func(c *columns) { c.resolved = 9 },
			"budget_key": func(c *columns) { c.budgetKey = nil },
			"began":      func(c *columns) { c.began++ },
			"at":         func(c *columns) { c.at++ },
		} {
			spoiled := is
			spoil(&spoiled)
			if _, _, err := undone(change{was.encode(), spoiled.encode()}, 9); err == nil {
				t.Errorf("recovery of %s that changes %s was taken", from, name)
			}
		}
		for name, c := range map[string]change{"new": {nil, is.encode()}, "settled": {is.encode(), is.encode()}, "no form": {was.encode(), []byte("x")}} {
			if _, _, err := undone(c, 9); err == nil {
				t.Errorf("%s was taken", name)
			}
		}
	}
}
