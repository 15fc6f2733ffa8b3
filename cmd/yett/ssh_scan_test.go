package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/sshconfig"
)

func testKeyLine(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return sshconfig.Line(key)
}

func TestComparedKeys(t *testing.T) {
	parse := func(line string) ssh.PublicKey {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	a, b := testKeyLine(t), testKeyLine(t)
	known := func(line string) sshconfig.Found { return sshconfig.Found{Keys: []ssh.PublicKey{parse(line)}} }
	for name, c := range map[string]struct {
		host    access.Host
		known   sshconfig.Found
		changed bool
	}{
		"new":                          {access.Host{}, sshconfig.Found{}, false},
		"listed":                       {access.Host{HostKeys: []string{a}}, sshconfig.Found{}, false},
		"another is listed":            {access.Host{HostKeys: []string{b}}, sshconfig.Found{}, true},
		"both are listed":              {access.Host{HostKeys: []string{b, a}}, sshconfig.Found{}, false},
		"known":                        {access.Host{}, known(a), false},
		"another is known":             {access.Host{}, known(b), true},
		"listed, and another is known": {access.Host{HostKeys: []string{a}}, known(b), false},
		"revoked here":                 {access.Host{HostKeys: []string{b}, Revoked: []string{a}}, sshconfig.Found{}, true},
		"revoked there":                {access.Host{}, sshconfig.Found{Revoked: []ssh.PublicKey{parse(a)}}, true},
		"certified":                    {access.Host{HostCAs: []string{b}}, known(b), false},
	} {
		if r := compareKeys(c.host, c.known, []ssh.PublicKey{parse(a)}); r.Changed != c.changed {
			t.Errorf("%s: changed = %v", name, r.Changed)
		}
	}
}

func TestAddressesOfScan(t *testing.T) {
	for text, want := range map[string]string{
		"web1.example": "web1.example:22", "Web1.example:2222": "web1.example:2222", "ada@web1.example": "web1.example:22",
		"[2001:db8::1]:23": "[2001:db8::1]:23", "2001:db8::1": "[2001:db8::1]:22", "[2001:db8::1]": "[2001:db8::1]:22",
	} {
		if got := addressOf(text, 22).String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestHostWithItsPort(t *testing.T) {
	for host, want := range map[string]string{
		"web1.example": "web1.example 22", "127.0.0.1:38472": "127.0.0.1 38472", "[2001:db8::1]:23": "2001:db8::1 23",
		"2001:db8::1": "2001:db8::1 22", "[2001:db8::1]": "[2001:db8::1] 22", "web1:ssh": "refused", ":22": "refused",
	} {
		o := addOptions{host: host, port: defaultSSHPort}
		got := "refused"
		if err := o.splitPort(); err == nil {
			got = fmt.Sprintf("%s %d", o.host, o.port)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if o := (addOptions{host: "web1:23", port: 24}); o.splitPort() == nil {
		t.Error("two ports were taken")
	}
}
