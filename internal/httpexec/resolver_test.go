package httpexec

import (
	"os"
	"os/exec"
	"testing"
)

const resolverVariable = "YETT_TEST_RESOLVER"

// H06: Go has two resolvers, its own and the system's; which one a program uses
// is a matter of how it was built and where it runs. Both give loopback, and the
// second reads odd numbers as addresses: neither gets a connection out of it.
func TestH06_BothResolvers(t *testing.T) {
	if os.Getenv(resolverVariable) != "" {
		lookUpForReal(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"go", "cgo"} {
		c := exec.Command(self, "-test.run=^TestH06_BothResolvers$")
		c.Env = append(os.Environ(), resolverVariable+"="+kind, "GODEBUG=netdns="+kind)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("netdns=%s: %v: %s", kind, err, out)
		}
	}
}

// lookUpForReal asks the resolver that this process has.
func lookUpForReal(t *testing.T) {
	s := newRawServer(t, answers(ok))
	e := newExecutor(t)
	target := s.target()
	target.Host = "localhost"
	if res := do(t, e, target, get); string(res.Body) != "ok" {
		t.Errorf("localhost with leave: %+v", res)
	}
	target.Private, target.Insecure = false, true
	for _, host := range []string{"localhost", "2130706433", "127.1", "0x7f.1", "0177.0.0.1", "0x7f000001"} {
		target.Host = host
		if err := refused(t, e, target, bearer, get); err.Code != CodeTargetBlocked {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := len(s.heads()); n != 1 {
		t.Errorf("%d requests arrived", n)
	}
}
