package yetttest

import (
	"errors"
	"testing"

	"github.com/yett-broker/yett/internal/demo"
)

// SSHD is a running SSH server for a test.
type SSHD = demo.SSHD

// StartSSHD starts a real OpenSSH server for the length of the test. Lines of
// config go before its own in sshd_config. Without OpenSSH the test fails: a
// skipped test of SSH would prove nothing and look green.
func StartSSHD(t testing.TB, config ...string) *SSHD {
	t.Helper()
	s, err := demo.StartSSHDIn(t.TempDir(), config...)
	if errors.Is(err, demo.ErrNoSSHD) {
		t.Fatalf("%v: this test needs a real one; install it (Debian: apt-get install openssh-server; macOS has it)", err)
	}
	if err != nil {
		t.Fatalf("starting sshd: %v", err)
	}
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Logf("log of sshd:\n%s", s.Log())
		}
	})
	return s
}
