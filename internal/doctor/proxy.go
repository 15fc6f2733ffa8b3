package doctor

import (
	"os"
	"strings"
)

// proxyVariables are those that other programs take a proxy from.
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}

// proxyFindings name the variables, which may hold a password, and not their
// values. The broker keeps nothing of its environment.
func proxyFindings() []Finding {
	var set []string
	for _, name := range proxyVariables {
		if os.Getenv(name) != "" {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return nil
	}
	return []Finding{weaker("proxy", strings.Join(set, ", ")+" in this environment: the broker does not use it", ProxyIgnored)}
}
