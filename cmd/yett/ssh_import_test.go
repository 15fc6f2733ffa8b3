package main

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
	return keyLine(key)
}

// planOf is the plan for all hosts of a configuration, with key files that are
// there.
func planOf(t *testing.T, applied, config, known string, files ...string) *importPlan {
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
	p := &importPlan{home: home, account: "ada"}
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
	for _, n := range p.config.Names() {
		p.take(n)
	}
	return p
}

// tablesOf are the tables of a plan, as they are read again.
func tablesOf(t *testing.T, p *importPlan, applied string) *access.Policy {
	t.Helper()
	text, err := p.tables([]string{"uptime"}, nil)
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
	for _, l := range p.leftOut {
		left = append(left, l.Host)
	}
	// hop2 has a way of its own that cannot be gone, and web behind it neither;
	// a name with '_' is none of a host.
	if !slices.Equal(left, []string{"Web_1", "other", "hop2"}) {
		t.Errorf("left out: %v", p.leftOut)
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
	if len(p.hosts) != 5 {
		t.Errorf("hosts of what is left out stay: %d", len(p.hosts))
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
	if len(p.leftOut) != 0 || len(p.hosts) != 1 || p.hosts[0].Name != "taken-2" || !slices.Equal(p.hosts[0].Jump, []string{"same"}) {
		t.Fatalf("hosts %+v, left out %v", p.hosts, p.leftOut)
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
		if len(p.leftOut) != 1 || !strings.Contains(p.leftOut[0].Why, why) || len(p.hosts) != 0 {
			t.Errorf("%q: %v, want …%s…", config, p.leftOut, why)
		}
	}
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
