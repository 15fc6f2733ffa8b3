package demo_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/demo"
	"github.com/yett-broker/yett/internal/sshexec"
)

func run(t *testing.T, s *demo.SSHD, key []byte, command, stdin string) (*sshexec.Result, error) {
	t.Helper()
	k, err := sshexec.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	e := sshexec.New(sshexec.Options{OwnPorts: func() []int { return nil }})
	return e.Do(t.Context(), sshexec.Target{Address: s.Address, User: s.User, HostKeys: []string{s.HostKey}, Private: true},
		k, action.SSH{Command: command, Stdin: []byte(stdin)})
}

func wantStatus(t *testing.T, res *sshexec.Result, err error, want int) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if res.Exit.Status == nil || *res.Exit.Status != want {
		t.Errorf("exit = %+v, want status %d", res.Exit, want)
	}
}

func startOpenSSH(t *testing.T, dir string) *demo.SSHD {
	t.Helper()
	s, err := demo.StartSSHDIn(dir)
	if errors.Is(err, demo.ErrNoSSHD) {
		t.Fatalf("%v: install it (Debian: apt-get install openssh-server; macOS has it)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func startBuiltin(t *testing.T) *demo.SSHD {
	t.Helper()
	s, err := demo.StartBuiltinSSHD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func TestBothServersLetOnlyTheirKeyIn(t *testing.T) {
	openssh, inside := startOpenSSH(t, t.TempDir()), startBuiltin(t)
	for _, s := range []*demo.SSHD{openssh, inside} {
		res, err := run(t, s, s.ClientKey, "exit 3", "")
		wantStatus(t, res, err, 3)
		other := openssh
		if s == openssh {
			other = inside
		}
		var refused *sshexec.Error
		if _, err := run(t, s, other.ClientKey, "exit 0", ""); !errors.As(err, &refused) || refused.Code != sshexec.CodeAuth {
			t.Errorf("builtin %v: another key: err = %v", s.Builtin, err)
		}
	}
}

func TestBuiltinServerChecksTheAccount(t *testing.T) {
	s := startBuiltin(t)
	s.User += "-other"
	var refused *sshexec.Error
	if _, err := run(t, s, s.ClientKey, "exit 0", ""); !errors.As(err, &refused) || refused.Code != sshexec.CodeAuth {
		t.Errorf("err = %v", err)
	}
}

func TestBuiltinCommands(t *testing.T) {
	s := startBuiltin(t)
	for _, c := range []struct {
		command, stdin string
		status         int
		stdout, stderr string // substrings
	}{
		{"echo one two", "", 0, "one two\n", ""},
		{"uptime", "", 0, "up ", ""},
		{"hostname", "", 0, "yett-demo\n", ""},
		{"whoami", "", 0, "demo\n", ""},
		{"date", "", 0, "T", ""},
		{"cat", "some input", 0, "some input", ""},
		{"cat /etc/passwd", "", 1, "", "standard input only"},
		{"true", "", 0, "", ""},
		{"false", "", 1, "", ""},
		{"exit 255", "", 255, "", ""},
		{"exit", "", 0, "", ""},
		{"exit 256", "", 2, "", "0 to 255"},
		{"rm -r /", "", 127, "", "command not found"},
		{"echo $HOME", "", 2, "", "plain words"},
		{"true; echo x", "", 2, "", "plain words"},
	} {
		t.Run(c.command, func(t *testing.T) {
			res, err := run(t, s, s.ClientKey, c.command, c.stdin)
			wantStatus(t, res, err, c.status)
			if !strings.Contains(string(res.Stdout), c.stdout) || !strings.Contains(string(res.Stderr), c.stderr) {
				t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
			}
			if c.stdout == "" && len(res.Stdout) != 0 {
				t.Errorf("stdout %q, want none", res.Stdout)
			}
		})
	}
	if log := s.Log(); !strings.Contains(log, `command "uptime"`) {
		t.Errorf("log:\n%s", log)
	}
}

func TestBuiltinServerOffersNothingButCommands(t *testing.T) {
	s := startBuiltin(t)
	k, err := ssh.ParsePrivateKey(s.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", s.Address, &ssh.ClientConfig{
		User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(k)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if conn, err := c.Dial("tcp", s.Address); err == nil {
		conn.Close()
		t.Error("it forwards connections")
	}
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if session.Shell() == nil || session.RequestSubsystem("sftp") == nil || session.RequestPty("x", 1, 1, nil) == nil {
		t.Error("it offers a shell, a subsystem or a terminal")
	}
}

// Stop ends what is under way, and afterwards nobody answers.
func TestStopEndsEverything(t *testing.T) {
	for _, s := range []*demo.SSHD{startOpenSSH(t, t.TempDir()), startBuiltin(t)} {
		k, err := ssh.ParsePrivateKey(s.ClientKey)
		if err != nil {
			t.Fatal(err)
		}
		config := &ssh.ClientConfig{User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(k)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}
		c, err := ssh.Dial("tcp", s.Address, config)
		if err != nil {
			t.Fatal(err)
		}
		s.Stop()
		c.Wait() // returns when the connection has ended
		if c, err := ssh.Dial("tcp", s.Address, config); err == nil {
			c.Close()
			t.Errorf("builtin %v: it still answers", s.Builtin)
		}
		s.Stop() // once more is no error
	}
}

func TestOpenSSHTakesADirectoryWithOddCharacters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b%u")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := startOpenSSH(t, dir)
	res, err := run(t, s, s.ClientKey, "exit 0", "")
	wantStatus(t, res, err, 0)
}
