package yetttest

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// TestSelftest: every check passes on a system that is supported, as an
// ordinary account, without any environment, and the log has its shape.
func TestSelftest(t *testing.T) {
	c := exec.Command(Bin("yett"), "selftest", "--json")
	c.Env = []string{}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var log struct {
		OK                            bool
		System, Architecture, Version string
		Checks                        []struct{ Name, Result, Found string }
	}
	if err := json.Unmarshal(out, &log); err != nil {
		t.Fatal(err)
	}
	if !log.OK || log.System == "" || log.Architecture == "" || log.Version == "" || len(log.Checks) < 10 {
		t.Errorf("%+v", log)
	}
	for _, c := range log.Checks {
		if notHere := c.Result == "SKIP" && c.Found == "it is of macOS"; c.Result != "PASS" && !notHere || c.Found == "" {
			t.Errorf("%+v", c)
		}
	}
}
