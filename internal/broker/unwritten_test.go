package broker

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestLostOutcomeIsTold: what could not be written is told once, what was written
// is forgotten, and what is not decided stays.
func TestLostOutcomeIsTold(t *testing.T) {
	var u unwritten
	results := map[string]chan error{}
	for _, id := range []string{"op_lost", "op_written", "op_waiting"} {
		results[id] = make(chan error, 1)
		u.add(id, results[id])
	}
	results["op_lost"] <- errors.New("no space left")
	results["op_written"] <- nil
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	u.look(log)
	u.look(log)
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "op_lost") {
		t.Errorf("told: %s", text)
	}
	if len(u.list) != 1 || u.list[0].operation != "op_waiting" {
		t.Errorf("kept: %v", u.list)
	}
}
