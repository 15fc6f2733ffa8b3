package doctor

import (
	"strings"
	"testing"
)

// H20: a proxy of the environment is reported as one that is not used, without
// what it may hold.
func TestH20_ProxyOfTheEnvironmentIsReported(t *testing.T) {
	for _, name := range proxyVariables {
		t.Setenv(name, "")
	}
	if f := proxyFindings(); f != nil {
		t.Errorf("%+v", f)
	}
	t.Setenv("HTTPS_PROXY", "http://user:pa55word@192.0.2.9:3128")
	f := proxyFindings()
	if len(f) != 1 || f[0].Level != Weaker || f[0].Cause != ProxyIgnored || !strings.Contains(f[0].Found, "HTTPS_PROXY") || strings.Contains(f[0].Found, "192.0.2.9") || strings.Contains(f[0].Found, "pa55word") {
		t.Errorf("%+v", f)
	}
}
