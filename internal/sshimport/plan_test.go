package sshimport

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// planOf is the plan for all hosts of a configuration, with key files that are
// there.
func planOf(t *testing.T, applied, config, known string, files ...string) *Plan {
	t.Helper()
	home := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(home, ".ssh", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, f := range files {
		write(f, "a key")
	}
	p := &Plan{home: home, account: "ada"}
	var err error
	if p.config, err = sshconfig.Read(write("config", config), home); err != nil {
		t.Fatal(err)
	}
	if p.known, err = sshconfig.ReadKnown(write("known_hosts", known)); err != nil {
		t.Fatal(err)
	}
	if p.applied, err = access.Parse([]byte(applied)); err != nil {
		t.Fatal(err)
	}
	p.Take(p.applied, nil)
	return p
}

// tablesOf are the tables of a plan, as they are read again.
func tablesOf(t *testing.T, p *Plan, applied string) *access.Policy {
	t.Helper()
	text, err := p.Tables([]string{"uptime"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	read, err := access.Parse(append([]byte(applied), text...))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return read
}

func TestImportedHosts(t *testing.T) {
	a, b, ca, gone := testKeyLine(t), testKeyLine(t), testKeyLine(t), testKeyLine(t)
	p := planOf(t, "", `
Host Web_1 other
  HostName %h.example
  ProxyJump root@hop1:2022,hop2
Host hop1
  HostName hop.example
Host inside
  ProxyJump root@hop1:2022
Host hop2
  HostName 192.0.2.9
  HostKeyAlias vault
  ProxyJump nobody
  IdentityFile ~/.ssh/id_second
Host certified
  HostName c.ca.example
  CertificateFile ~/.ssh/id_rsa-cert.pub
Host ipv6
  HostName 2001:db8::7
  Port 2222
  IdentityFile %d/.ssh/id_%r
Host *
  User ops
  IdentitiesOnly yes
`, fmt.Sprintf(`web_1.example,other.example,inside %[1]s
[hop.example]:2022,hop.example %[2]s
vault %[1]s
@cert-authority *.ca.example %[3]s
@revoked * %[4]s
[2001:db8::7]:2222 %[2]s
`, a, b, ca, gone), "id_rsa", "id_second", "id_ops")
	var left []string
	for _, l := range p.LeftOut {
		left = append(left, l.Host)
	}
	// hop2 has a way of its own that cannot be gone, and web behind it neither;
	// a name with '_' is none of a host.
	if !slices.Equal(left, []string{"Web_1", "other", "hop2"}) {
		t.Errorf("left out: %v", p.LeftOut)
	}
	read := tablesOf(t, p, "")
	h, ok := read.Host("hop1")
	if !ok || h.String() != "ops@hop.example:22" || !slices.Equal(h.HostKeys, []string{b}) || !slices.Equal(h.Revoked, []string{gone}) {
		t.Errorf("hop1: %+v", h)
	}
	if h, ok = read.Host("hop1-root-2022"); !ok || h.String() != "root@hop.example:2022" {
		t.Errorf("hop1 as another account on another port: %+v", h)
	}
	if h, ok = read.Host("inside"); !ok || !slices.Equal(h.Jump, []string{"hop1-root-2022"}) {
		t.Errorf("inside: %+v", h)
	}
	if len(p.Hosts) != 5 {
		t.Errorf("hosts of what is left out stay: %d", len(p.Hosts))
	}
	if h, ok = read.Host("certified"); !ok || !slices.Equal(h.HostCAs, []string{ca}) || len(h.HostKeys) != 0 || h.Key != "ssh-id-rsa" {
		t.Errorf("certified: %+v", h)
	}
	if h, ok = read.Host("ipv6"); !ok || h.Address.String() != "[2001:db8::7]:2222" || h.Key != "ssh-id-ops" {
		t.Errorf("ipv6: %+v", h)
	}
	if _, ok := read.Capability("ssh:certified.status"); !ok {
		t.Error("no capability for a host that was asked for")
	}
	if _, ok := read.Capability("ssh:hop1-root-2022.status"); ok {
		t.Error("a capability for a host that is only on the way")
	}
}

// What is applied stays: a host of the same place is used as it is, and one of
// another place gets another name.
func TestImportLeavesWhatIsApplied(t *testing.T) {
	line := testKeyLine(t)
	applied := fmt.Sprintf("[credential.k]\nkind = \"ssh-key\"\n[host.same]\naddress = \"same.example\"\nuser = \"ada\"\nkey = \"k\"\nhost_keys = [%[1]q]\n"+
		"[host.taken]\naddress = \"elsewhere.example\"\nuser = \"ada\"\nkey = \"k\"\nhost_keys = [%[1]q]\n", line)
	p := planOf(t, applied, "Host same\n HostName same.example\nHost taken\n HostName taken.example\n ProxyJump same\n", "same.example,taken.example "+testKeyLine(t)+"\n", "id_ed25519")
	if len(p.LeftOut) != 0 || len(p.Hosts) != 1 || p.Hosts[0].Name != "taken-2" || !slices.Equal(p.Hosts[0].Jump, []string{"same"}) {
		t.Fatalf("hosts %+v, left out %v", p.Hosts, p.LeftOut)
	}
	read := tablesOf(t, p, applied)
	if h, _ := read.Host("same"); !slices.Equal(h.HostKeys, []string{line}) {
		t.Error("an applied host was changed")
	}
	if way := read.Way("taken-2"); len(way) != 1 || way[0].Name != "same" {
		t.Errorf("way %v", way)
	}
}

func TestImportRefusesWhatItCannotRead(t *testing.T) {
	for config, why := range map[string]string{
		"Host a\n HostName %n.example\n":                                    "% token",
		"Host a\n ProxyJump a\n":                                            "circle",
		"Host a\n ProxyJump 'x y@@'\n":                                      "cannot be read",
		"Host a\n ProxyCommand none\n IdentityFile /nowhere\n":              "is not there",
		"Host a\n User 'two words'\n":                                       "user",
		"Host a\n Port 0\n":                                                 "ssh knows no key",
		"Host a\n HostName 169.254.169.254\n":                               "metadata",
		"Host a\n PKCS11Provider /usr/lib/x.so\n ProxyCommand connect %h\n": "ProxyCommand",
	} {
		p := planOf(t, "", config, "a,169.254.169.254 "+testKeyLine(t)+"\n", "id_rsa")
		if len(p.LeftOut) != 1 || !strings.Contains(p.LeftOut[0].Why, why) || len(p.Hosts) != 0 {
			t.Errorf("%q: %v, want …%s…", config, p.LeftOut, why)
		}
	}
}
