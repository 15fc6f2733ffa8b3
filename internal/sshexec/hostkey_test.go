package sshexec_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// keygen makes a key pair with OpenSSH's own program and returns the path of
// the private part and both contents. RSA keys are slow to make: they are one
// key in different forms.
func keygen(t testing.TB, args ...string) (path string, private []byte, publicLine string) {
	t.Helper()
	if slices.Contains(args, "rsa") {
		return rsaInForm(t, args)
	}
	path = filepath.Join(t.TempDir(), "key")
	sshKeygen(t, append([]string{"-q", "-f", path}, args...)...)
	return path, read(t, path), strings.TrimSpace(string(read(t, path+".pub")))
}

var rsaPair struct {
	sync.Mutex
	private, public []byte
}

// rsaInForm writes the RSA key as args demand, which are those of making one.
func rsaInForm(t testing.TB, args []string) (path string, private []byte, publicLine string) {
	t.Helper()
	rsaPair.Lock()
	defer rsaPair.Unlock()
	if rsaPair.private == nil {
		path := filepath.Join(t.TempDir(), "rsa")
		sshKeygen(t, "-q", "-t", "rsa", "-b", "2048", "-N", "", "-C", "", "-f", path)
		rsaPair.private, rsaPair.public = read(t, path), read(t, path+".pub")
	}
	path = filepath.Join(t.TempDir(), "key")
	for name, content := range map[string][]byte{path: rsaPair.private, path + ".pub": rsaPair.public} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change := []string{"-q", "-p", "-P", "", "-f", path}
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "-t", "-b", "-C":
		default:
			change = append(change, args[i], args[i+1])
		}
	}
	sshKeygen(t, change...)
	return path, read(t, path), strings.TrimSpace(string(rsaPair.public))
}

func sshKeygen(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen %q: %v: %s (Debian: apt-get install openssh-client)", args, err, out)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestS01_AlgorithmsFollowTheListedKeys(t *testing.T) {
	lines := make(map[string]string)
	var config []string
	for _, kind := range []string{"ecdsa", "rsa"} {
		path, _, line := keygen(t, "-t", kind, "-N", "")
		lines[kind] = line
		config = append(config, "HostKey "+path)
	}
	s := yetttest.StartSSHD(t, config...)
	lines["ed25519"] = s.HostKey
	stranger := publicLine(newTestKey(t).PublicKey())
	for name, keys := range map[string][]string{
		"ed25519 only":         {lines["ed25519"]},
		"ecdsa only":           {lines["ecdsa"]},
		"rsa only":             {lines["rsa"]},
		"rsa, then ecdsa":      {lines["rsa"], lines["ecdsa"]},
		"an older key as well": {stranger, lines["ed25519"]},
	} {
		t.Run(name, func(t *testing.T) {
			tg := targetOf(s)
			tg.HostKeys = keys
			res, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "exit 0"})
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, res, 0)
		})
	}
}

func TestS03_ChangedHostKeyIsFatalOnWhateverPort(t *testing.T) {
	listed, other := yetttest.StartSSHD(t), yetttest.StartSSHD(t)
	tg := targetOf(other)
	tg.HostKeys = []string{listed.HostKey}
	marker := filepath.Join(t.TempDir(), "ran")
	_, err := newExecutor().Do(t.Context(), tg, signerOf(t, other), action.SSH{Command: "touch " + marker})
	e := wantError(t, err, sshexec.CodeHostKey, false)
	var mismatch *sshexec.HostKeyError
	if !errors.As(e, &mismatch) {
		t.Fatalf("cause = %T", e.Cause)
	}
	for _, line := range []string{listed.HostKey, other.HostKey} {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if print := ssh.FingerprintSHA256(key); !strings.Contains(e.Error(), print) {
			t.Errorf("the error does not show %s: %v", print, e)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran on a host that is not the listed one")
	}
	other.Stop()
	if log := other.Log(); strings.Contains(log, "publickey") || strings.Contains(log, "Accepted") {
		t.Errorf("the key was offered to a host that is not the listed one:\n%s", log)
	}
}

func TestS01_NoListedKindOfKeyIsAHostKeyError(t *testing.T) {
	s := yetttest.StartSSHD(t)
	_, _, rsa := keygen(t, "-t", "rsa", "-N", "")
	tg := targetOf(s)
	tg.HostKeys = []string{rsa}
	_, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "true"})
	e := wantError(t, err, sshexec.CodeHostKey, false)
	for _, word := range []string{"rsa-sha2-512", "ssh-ed25519"} {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, e)
		}
	}
}

func TestS12_HostKeySignedWithSHA1IsRefused(t *testing.T) {
	path, _, line := keygen(t, "-t", "rsa", "-N", "")
	s := yetttest.StartSSHD(t, "HostKey "+path, "HostKeyAlgorithms ssh-rsa")
	tg := targetOf(s)
	tg.HostKeys = []string{line}
	_, err := newExecutor().Do(t.Context(), tg, signerOf(t, s), action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeHostKey, false)
}

func TestHostKeysThatCannotBeListed(t *testing.T) {
	good := publicLine(newTestKey(t).PublicKey())
	_, _, certified := keygen(t, "-t", "ed25519", "-N", "")
	for name, keys := range map[string][]string{
		"none":             nil,
		"an empty line":    {""},
		"not a key":        {"ssh-ed25519 AAAA"},
		"one good, one no": {good, "nonsense"},
		"known_hosts form": {"web1.example.net " + good},
		"a marker":         {"@cert-authority * " + good},
		"options":          {`from="10.0.0.1" ` + good},
		"two in one line":  {good + "\n" + good},
		"a comment only":   {"# " + good},
		"a certificate":    {certificate(t, certified)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHost(t, func(net.Conn) {})
			tg := sshexec.Target{Address: h.address, User: "deploy", HostKeys: keys, Private: true}
			_, err := newExecutor().Do(t.Context(), tg, newTestKey(t), action.SSH{Command: "true"})
			wantError(t, err, sshexec.CodeHostKey, false)
			select {
			case <-h.accepted:
				t.Error("the host was dialled")
			default:
			}
		})
	}
}

// certificate signs the key of a line with a new authority.
func certificate(t testing.TB, line string) string {
	t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	c := &ssh.Certificate{Key: key, CertType: ssh.HostCert, ValidPrincipals: []string{"web1"}, ValidBefore: ssh.CertTimeInfinity}
	if err := c.SignCert(randomBytes{}, newTestKey(t)); err != nil {
		t.Fatal(err)
	}
	return publicLine(c)
}
