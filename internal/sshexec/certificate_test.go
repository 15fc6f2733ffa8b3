package sshexec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// authority is a certificate authority in a file, as ssh-keygen makes it.
type authority struct{ path, line string }

func newAuthority(t testing.TB, args ...string) authority {
	path, _, line := keygen(t, append(args, "-N", "", "-C", "")...)
	return authority{path, line}
}

// sign certifies the key at path and returns the path of the certificate.
func (a authority) sign(t testing.TB, path string, args ...string) string {
	t.Helper()
	sshKeygen(t, append(append([]string{"-q", "-s", a.path, "-I", "a test"}, args...), path+".pub")...)
	return path + "-cert.pub"
}

func TestHostCertificates(t *testing.T) {
	good, other, rsaCA := newAuthority(t, "-t", "ed25519"), newAuthority(t, "-t", "ed25519"), newAuthority(t, "-t", "rsa", "-b", "2048")
	for name, c := range map[string]struct {
		key    string // its type
		signed authority
		args   []string
		change func(*sshexec.Target)
		why    string // empty: accepted
	}{
		"for its address":         {"ed25519", good, []string{"-h", "-n", "127.0.0.1"}, nil, ""},
		"an ECDSA key":            {"ecdsa", good, []string{"-h", "-n", "127.0.0.1"}, nil, ""},
		"an RSA key":              {"rsa", good, []string{"-h", "-n", "127.0.0.1"}, nil, ""},
		"signed by RSA with SHA2": {"ed25519", rsaCA, []string{"-h", "-n", "127.0.0.1", "-t", "rsa-sha2-512"}, nil, ""},
		"signed by RSA with SHA1": {"ed25519", rsaCA, []string{"-h", "-n", "127.0.0.1", "-t", "ssh-rsa"}, nil, "SHA-1"},
		"for a listed name": {"ed25519", good, []string{"-h", "-n", "a.example,web1.example"},
			func(tg *sshexec.Target) { tg.HostNames = []string{"web1.example", "b.example"} }, ""},
		"for another name":        {"ed25519", good, []string{"-h", "-n", "web2.example"}, nil, "principal"},
		"for any name":            {"ed25519", good, []string{"-h"}, nil, "principal"},
		"of another authority":    {"ed25519", other, []string{"-h", "-n", "127.0.0.1"}, nil, "is not listed"},
		"expired":                 {"ed25519", good, []string{"-h", "-n", "127.0.0.1", "-V", "20200101:20210101"}, nil, "expired"},
		"not yet good":            {"ed25519", good, []string{"-h", "-n", "127.0.0.1", "-V", "20900101:20910101"}, nil, "not yet valid"},
		"of a revoked authority":  {"ed25519", good, []string{"-h", "-n", "127.0.0.1"}, func(tg *sshexec.Target) { tg.Revoked = tg.HostCAs }, "was revoked"},
		"whose own key is listed": {"ed25519", other, []string{"-h", "-n", "nobody"}, func(tg *sshexec.Target) { tg.HostKeys = tg.Revoked; tg.Revoked = nil }, ""},
		"of a revoked key":        {"ed25519", good, []string{"-h", "-n", "127.0.0.1"}, func(*sshexec.Target) {}, "its key was revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, _, line := keygen(t, "-t", c.key, "-N", "", "-C", "")
			s := yetttest.StartSSHD(t, "HostKey "+path, "HostCertificate "+c.signed.sign(t, path, c.args...))
			tg := targetOf(s)
			tg.HostKeys, tg.HostCAs = nil, []string{good.line, rsaCA.line}
			if c.change != nil {
				tg.Revoked = []string{line}
				c.change(&tg)
			}
			if name == "for a listed name" {
				tg.Revoked = nil
			}
			res, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "exit 3"})
			if c.why == "" {
				if err != nil {
					t.Fatal(err)
				}
				wantStatus(t, res, 3)
				if !strings.HasSuffix(res.HostKey, fingerprint(t, line)) {
					t.Errorf("host key %s", res.HostKey)
				}
				return
			}
			if e := wantError(t, err, sshexec.CodeHostKey, false); !strings.Contains(e.Error(), c.why) {
				t.Errorf("err = %v, want …%s…", e, c.why)
			}
			s.Stop()
			if strings.Contains(s.Log(), "Accepted publickey") {
				t.Error("the key was shown to a host that is not proved")
			}
		})
	}
}

// Where an authority is listed beside keys, a host without a certificate is
// still known by its key.
func TestS01_KeysAndAuthoritiesTogether(t *testing.T) {
	s := yetttest.StartSSHD(t)
	tg := targetOf(s)
	tg.HostCAs = []string{newAuthority(t, "-t", "ed25519").line}
	res, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "exit 0"})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, res, 0)
	tg.HostKeys = nil
	_, err = newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "exit 0"})
	wantError(t, err, sshexec.CodeHostKey, false)
	// A listed key that was revoked is one no more.
	tg.HostKeys, tg.Revoked = []string{s.HostKey}, []string{s.HostKey}
	_, err = newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "exit 0"})
	if e := wantError(t, err, sshexec.CodeHostKey, false); !strings.Contains(e.Error(), "its key was revoked") {
		t.Errorf("err = %v", e)
	}
}

func TestUserCertificates(t *testing.T) {
	ca := newAuthority(t, "-t", "ed25519")
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run(kind, func(t *testing.T) {
			path, private, _ := keygen(t, "-t", kind, "-N", "", "-C", "")
			none := filepath.Join(t.TempDir(), "authorized_keys")
			if err := os.WriteFile(none, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s := yetttest.StartSSHD(t, "TrustedUserCAKeys "+ca.path+".pub", "AuthorizedKeysFile "+none)
			key := parseKey(t, private)
			_, err := newExecutor().Do(t.Context(), targetOf(s), key, action.SSH{Command: "exit 0"})
			wantError(t, err, sshexec.CodeAuth, false) // not without it
			certified, err := sshexec.Certify(key, string(read(t, ca.sign(t, path, "-n", s.User))))
			if err != nil {
				t.Fatal(err)
			}
			res, err := newExecutor().Do(t.Context(), targetOf(s), certified, action.SSH{Command: "exit 4"})
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, res, 4)
			if kind != "rsa" {
				return
			}
			old := yetttest.StartSSHD(t, "TrustedUserCAKeys "+ca.path+".pub", "AuthorizedKeysFile "+none,
				"PubkeyAcceptedAlgorithms ssh-rsa-cert-v01@openssh.com,ssh-rsa")
			_, err = newExecutor().Do(t.Context(), targetOf(old), certified, action.SSH{Command: "true"})
			if e := wantError(t, err, sshexec.CodeAuth, false); !strings.Contains(e.Error(), "rsa-sha2-512, rsa-sha2-256") {
				t.Errorf("S12: the error does not name the algorithms: %v", e)
			}
			old.Stop()
			if strings.Contains(old.Log(), "Accepted publickey") {
				t.Error("S12: a SHA-1 signature was made under a certificate")
			}
		})
	}
}

func TestCertificatesThatCannotBeUsed(t *testing.T) {
	ca := newAuthority(t, "-t", "ed25519")
	path, private, line := keygen(t, "-t", "ed25519", "-N", "", "-C", "")
	other, _, _ := keygen(t, "-t", "ed25519", "-N", "", "-C", "")
	key := parseKey(t, private)
	for name, c := range map[string]struct{ certificate, why string }{
		"of another key": {string(read(t, ca.sign(t, other, "-n", "u"))), "is for the key"},
		"ended":          {string(read(t, ca.sign(t, path, "-n", "u", "-V", "20200101:20210101"))), "ended at 2021-01-01"},
		"not begun":      {string(read(t, ca.sign(t, path, "-n", "u", "-V", "20900101:20910101"))), "good from 2090-01-01"},
		"of a host":      {string(read(t, ca.sign(t, path, "-h", "-n", "u"))), "no certificate of a user"},
		"a bare key":     {line, "no certificate of a user"},
		"nonsense":       {"nonsense", "reading the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := sshexec.Certify(key, c.certificate); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("Certify = %v, %v, want …%s…", s, err, c.why)
			}
		})
	}
}
