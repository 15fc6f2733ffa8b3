package main

import (
	"testing"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/preset"
)

// TestNameOfHost: a host that is given without --name gets a name that an access
// file takes and a person recognises.
func TestNameOfHost(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINsPSYGVCxI0+n4GzsP0mWf6nh359vYopHS9tKRpG6LK"
	for host, want := range map[string]string{"web1": "web1", "Web1.example.net": "web1", "10.1.2.3": "10.1.2.3", "[2001:db8::7]": "ip6-2001-db8--7", "2001:db8::7": "ip6-2001-db8--7", "::1": "ip6---1"} {
		name := nameOfHost(host)
		if name != want {
			t.Errorf("%s is named %s, want %s", host, name, want)
		}
		s := preset.Server{Name: name, Address: "a.example:22", User: "u", HostKeys: []string{key}, Look: []string{"uptime"}}
		if _, err := access.Parse(s.Tables()); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}
