package sshexec_test

import (
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/yetttest"
)

// randomBytes is crypto/rand as a value.
type randomBytes struct{}

func (randomBytes) Read(b []byte) (int, error) { return rand.Read(b) }

// startFor starts an sshd that authorizes the given public line.
func startFor(t testing.TB, line string, config ...string) *yetttest.SSHD {
	t.Helper()
	file := filepath.Join(t.TempDir(), "authorized_keys")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return yetttest.StartSSHD(t, append(config, "AuthorizedKeysFile "+file)...)
}

func TestUnknownKeyIsAnAuthError(t *testing.T) {
	s := yetttest.StartSSHD(t)
	_, err := newExecutor().Do(t.Context(), targetOf(s), newTestKey(t), action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeAuth, false)
}

func TestHostThatWantsMoreThanTheKey(t *testing.T) {
	s := yetttest.StartSSHD(t, "PasswordAuthentication yes", "AuthenticationMethods publickey,password")
	_, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s), action.SSH{Command: "true"})
	if e := wantError(t, err, sshexec.CodeAuth, false); !strings.Contains(e.Error(), `more than the key: ["password"]`) {
		t.Errorf("the error does not name what the host wants: %v", e)
	}
}

func TestHostThatTakesNoKeys(t *testing.T) {
	s := yetttest.StartSSHD(t, "PubkeyAuthentication no", "PasswordAuthentication yes", "AuthenticationMethods password")
	_, err := newExecutor().Do(t.Context(), targetOf(s), signerOf(t, s), action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeAuth, false)
}

func TestHostThatHangsUpDuringAuthenticationIsUpstream(t *testing.T) {
	host := newTestKey(t)
	h := newFakeHost(t, func(c net.Conn) {
		config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
			c.Close()
			return nil, net.ErrClosed
		}}
		config.AddHostKey(host)
		ssh.NewServerConn(c, config)
	})
	_, err := newExecutor().Do(t.Context(), hostTarget(h, host), newTestKey(t), action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeUpstream, false)
}

// The host sees every key that is offered to it: it must be the one.
func TestOnlyTheOneKeyIsOffered(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(t.TempDir(), "no-agent"))
	host, key := newTestKey(t), newTestKey(t)
	var mu sync.Mutex
	offered := make(map[string]bool)
	h := newFakeHost(t, func(c net.Conn) {
		config := &ssh.ServerConfig{
			PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
				mu.Lock()
				defer mu.Unlock()
				offered[publicLine(k)] = true
				return nil, net.ErrClosed
			},
			PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) {
				mu.Lock()
				defer mu.Unlock()
				offered["a password"] = true
				return nil, net.ErrClosed
			},
		}
		config.AddHostKey(host)
		ssh.NewServerConn(c, config)
	})
	_, err := newExecutor().Do(t.Context(), hostTarget(h, host), key, action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeAuth, false)
	mu.Lock()
	defer mu.Unlock()
	if len(offered) != 1 || !offered[publicLine(key.PublicKey())] {
		t.Errorf("offered %v", offered)
	}
}

func TestS12_RSAKeysSignWithSHA2(t *testing.T) {
	_, private, line := keygen(t, "-t", "rsa", "-b", "2048", "-N", "")
	for _, algorithm := range []string{"rsa-sha2-512", "rsa-sha2-256"} {
		t.Run(algorithm, func(t *testing.T) {
			s := startFor(t, line, "PubkeyAcceptedAlgorithms "+algorithm)
			res, err := newExecutor().Do(t.Context(), targetOf(s), parseKey(t, private), action.SSH{Command: "exit 0"})
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, res, 0)
		})
	}
	t.Run("SHA-1 only", func(t *testing.T) {
		s := startFor(t, line, "PubkeyAcceptedAlgorithms ssh-rsa")
		unrestricted, err := ssh.ParsePrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		for name, k := range map[string]ssh.Signer{"parsed here": parseKey(t, private), "of another maker": unrestricted} {
			_, err := newExecutor().Do(t.Context(), targetOf(s), k, action.SSH{Command: "true"})
			e := wantError(t, err, sshexec.CodeAuth, false)
			if !strings.Contains(e.Error(), "rsa-sha2-512") || !strings.Contains(e.Error(), "rsa-sha2-256") {
				t.Errorf("%s: the error does not name the algorithms: %v", name, e)
			}
		}
		s.Stop()
		if strings.Contains(s.Log(), "Accepted publickey") {
			t.Errorf("a SHA-1 signature was made:\n%s", s.Log())
		}
	})
}

// deaf is a signer, such as an agent of old, that signs with SHA-1 whatever it
// is asked for.
type deaf struct{ ssh.Signer }

func (d deaf) SignWithAlgorithm(rand io.Reader, data []byte, _ string) (*ssh.Signature, error) {
	return d.Sign(rand, data)
}

func TestS12_SignerThatIgnoresTheAlgorithmIsFound(t *testing.T) {
	_, private, line := keygen(t, "-t", "rsa", "-b", "2048", "-N", "")
	s := startFor(t, line, "PubkeyAcceptedAlgorithms +ssh-rsa")
	k, err := ssh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newExecutor().Do(t.Context(), targetOf(s), deaf{k}, action.SSH{Command: "true"})
	if e := wantError(t, err, sshexec.CodeAuth, false); !strings.Contains(e.Error(), `made a "ssh-rsa" signature where rsa-sha2-512 was asked for`) {
		t.Errorf("the error does not tell what the signer did: %v", e)
	}
	// A signer that can only do SHA-1 is not even tried.
	_, err = newExecutor().Do(t.Context(), targetOf(s), struct{ ssh.Signer }{k}, action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeAuth, false)
	_, err = newExecutor().Do(t.Context(), targetOf(s), nil, action.SSH{Command: "true"})
	wantError(t, err, sshexec.CodeAuth, false)
}
