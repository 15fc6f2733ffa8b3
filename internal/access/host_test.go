package access

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// hosts is a file with a chain: web1 over inner over outer.
const hosts = `[credential.k]
kind = "ssh-key"
[host.outer]
address = "outer.example"
user = "hop"
key = "k"
host_keys = ["` + keyA + `"]
[host.inner]
address = "inner.example:2222"
user = "hop"
key = "k"
host_keys = ["` + keyA + `"]
jump = ["outer"]
[host.web1]
address = "web1.example"
user = "deploy"
key = "k"
%s
`

func webWith(lines string) string { return fmt.Sprintf(hosts, lines) }

func wayOf(p *Policy, name string) (names []string) {
	for _, h := range p.Way(name) {
		names = append(names, h.Name)
	}
	return names
}

func TestWaysOverOtherHosts(t *testing.T) {
	for jump, want := range map[string][]string{
		``:                          nil,
		`jump = []`:                 nil,
		`jump = ["outer"]`:          {"outer"},
		`jump = ["inner"]`:          {"outer", "inner"},
		`jump = ["outer", "inner"]`: {"outer", "inner"},
	} {
		p := mustParse(t, webWith("host_keys = [\""+keyB+"\"]\n"+jump))
		if got := wayOf(p, "web1"); !slices.Equal(got, want) {
			t.Errorf("%s: way %v, want %v", jump, got, want)
		}
		if c, _ := p.Credential("k"); !strings.Contains(c.Place(), "hop@outer.example:22") {
			t.Errorf("the place of the key: %s", c.Place())
		}
	}
}

func TestHostOptions(t *testing.T) {
	p := mustParse(t, webWith(`host_ca = ["`+keyA+` the authority"]
host_names = ["web1.example", "web.example"]
revoked_keys = ["`+keyB+`"]
jump = ["outer"]
keepalive = "2m"
env = ["LANG", "LC_ALL"]`))
	h, _ := p.Host("web1")
	if len(h.HostKeys) != 0 || !slices.Equal(h.HostCAs, []string{keyA}) || !slices.Equal(h.HostNames, []string{"web1.example", "web.example"}) ||
		!slices.Equal(h.Revoked, []string{keyB}) || h.Keepalive != 2*time.Minute || !slices.Equal(h.Env, []string{"LANG", "LC_ALL"}) {
		t.Errorf("%+v", h)
	}
	d := p.Diff(nil)
	for _, line := range []string{
		"+ host authority: " + keyA + " (SHA256:", "+ certified as: web1.example, web.example\n", "+ revoked: " + keyB + " (SHA256:",
		"+ jump: outer\n", "+ keepalive: 2m\n", "+ environment: agents may set LANG\n",
	} {
		if !strings.Contains(d, line) {
			t.Errorf("no %q in\n%s", line, d)
		}
	}
	h.Env[0] = "PATH" // what is handed out is a copy
	if again, _ := p.Host("web1"); again.Env[0] != "LANG" {
		t.Error("the policy was changed from outside")
	}
}

func TestHostOptionsThatAreRefused(t *testing.T) {
	listed := `host_keys = ["` + keyA + `"]` + "\n"
	for _, c := range []struct{ lines, message string }{
		{``, "host_keys is missing"},
		{`host_ca = []`, "host_keys is missing"},
		{`host_ca = ["` + userCertificate(t, ssh.HostCert, "web1") + `"]` + "\n" + listed, "a certificate is not listed itself"},
		{listed + `revoked_keys = ["` + keyA + `"]`, "a key is listed as good too"},
		{listed + `host_names = ["web1.example"]`, "has no meaning without host_ca"},
		{`host_ca = ["` + keyB + `"]` + "\n" + `host_names = ["Web1.example"]`, "lower case"},
		{`host_ca = ["` + keyB + `"]` + "\n" + `host_names = ["*.example"]`, "not a valid name"},
		{listed + `jump = ["nobody"]`, "there is no [host.…] of that name"},
		{listed + `jump = ["web1"]`, "circle"},
		{listed + `jump = ["outer", "outer"]`, "twice"},
		{listed + `jump = ["inner", "outer"]`, "circle"},
		{listed + `jump = "outer"`, "array of strings"},
		{listed + `keepalive = "0s"`, "from \"1s\" to \"10m\""},
		{listed + `keepalive = "1500ms"`, "whole seconds"},
		{listed + `keepalive = "11m"`, "from \"1s\" to \"10m\""},
		{listed + `env = ["LANG=C"]`, "not the name"},
		{listed + `env = ["LD_PRELOAD"]`, "never set"},
		{listed + `env = ["BASH_ENV"]`, "never set"},
		{listed + `forward_agent = true`, "unknown key"},
	} {
		_, err := Parse([]byte(webWith(c.lines)))
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s\ngives %v, want …%s…", c.lines, err, c.message)
		}
	}
	circle := "[credential.k]\nkind = \"ssh-key\"\n"
	for i := range 3 {
		circle += fmt.Sprintf("[host.h%d]\naddress = \"h%d.example\"\nuser = \"u\"\nkey = \"k\"\nhost_keys = [%q]\njump = [\"h%d\"]\n", i, i, keyA, (i+1)%3)
	}
	if _, err := Parse([]byte(circle)); err == nil || strings.Count(err.Error(), "circle") != 3 {
		t.Errorf("a circle of three: %v", err)
	}
	long := "[credential.k]\nkind = \"ssh-key\"\n"
	for i := range 11 {
		long += fmt.Sprintf("[host.h%d]\naddress = \"h%d.example\"\nuser = \"u\"\nkey = \"k\"\nhost_keys = [%q]\n", i, i, keyA)
		if i > 0 {
			long += fmt.Sprintf("jump = [\"h%d\"]\n", i-1)
		}
	}
	if _, err := Parse([]byte(long)); err == nil || !strings.Contains(err.Error(), "host.h9.jump: leads over more than 8 hosts") || strings.Contains(err.Error(), "host.h8.jump") {
		t.Errorf("a long way: %v", err)
	}
}

func TestCertificatesOfUsers(t *testing.T) {
	file := func(certificate string) string {
		return fmt.Sprintf("[credential.k]\nkind = \"ssh-key\"\ncertificate = %q\n[host.h]\naddress = \"h.example\"\nuser = \"u\"\nkey = \"k\"\nhost_keys = [%q]\n", certificate, keyA)
	}
	good := userCertificate(t, ssh.UserCert, "deploy")
	p := mustParse(t, file(good+" a comment"))
	if c, _ := p.Credential("k"); c.Certificate != good {
		t.Errorf("certificate = %q", c.Certificate)
	}
	for _, line := range []string{"+ certificate: by hand, for deploy, until 2100-01-01T00:00:00Z\n", "+ certified by: ssh-ed25519 SHA256:"} {
		if d := p.Diff(nil); !strings.Contains(d, line) {
			t.Errorf("no %q in\n%s", line, d)
		}
	}
	for certificate, message := range map[string]string{
		"nonsense":                               "is not a certificate",
		keyA:                                     "without a certificate",
		userCertificate(t, ssh.HostCert, "web1"): "the certificate of a host",
		good + "\n" + good:                       "is not a certificate",
		"no-pty " + good:                         "is not a certificate",
	} {
		if _, err := Parse([]byte(file(certificate))); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%.40s…: %v, want …%s…", certificate, err, message)
		}
	}
	bearer := "[credential.b]\nkind = \"bearer\"\norigin = \"https://b.example\"\ncertificate = \"" + good + "\"\n"
	if _, err := Parse([]byte(bearer)); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("a certificate of a token: %v", err)
	}
}

// userCertificate is a certificate of a new key by a new authority.
func userCertificate(t *testing.T, kind uint32, principal string) string {
	t.Helper()
	var signers [2]ssh.Signer
	for i := range signers {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signers[i], err = ssh.NewSignerFromKey(private); err != nil {
			t.Fatal(err)
		}
	}
	c := &ssh.Certificate{Key: signers[0].PublicKey(), CertType: kind, KeyId: "by hand", ValidPrincipals: []string{principal},
		ValidBefore: uint64(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix())}
	if err := c.SignCert(rand.Reader, signers[1]); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(c)))
}
