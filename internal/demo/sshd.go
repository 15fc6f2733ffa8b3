package demo

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// ErrNoSSHD means that no OpenSSH server program is installed.
var ErrNoSSHD = errors.New("no OpenSSH server (sshd) on this machine")

// sshdPlaces is where the systems put sshd; it is seldom on an ordinary
// account's PATH, and it wants to be called by its full name.
var sshdPlaces = []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/lib/ssh/sshd", "/usr/bin/sshd"}

// privilegeSeparationDir is where sshd, started as root, insists on an empty
// directory.
const privilegeSeparationDir = "/run/sshd"

// SSHD is an SSH server on loopback with keys of its own. It lets in exactly
// one key, for the account that runs this process.
type SSHD struct {
	Address   string // host:port
	User      string
	HostKey   string // authorized-key line
	ClientKey []byte // private key in PEM; its public part is authorized
	Builtin   bool   // the server in this process, not OpenSSH

	listener net.Listener
	serving  sync.WaitGroup
	accepted atomic.Int64
	madeDir  bool // privilegeSeparationDir was not there before

	mu        sync.Mutex
	log       strings.Builder
	stopped   bool
	processes map[int]bool      // OpenSSH: process groups, one for each connection
	conns     map[net.Conn]bool // Builtin
}

// StartSSHDIn starts an OpenSSH server whose files lie in dir, which must be
// an own directory. Lines of config come before its own in sshd_config, and
// sshd takes the first value of each keyword. Connections are accepted here
// and each is handed to an sshd of its own (sshd -i), so that the port is
// never free between choosing and using it.
func StartSSHDIn(dir string, config ...string) (*SSHD, error) {
	program, err := findSSHD()
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("naming the account: %w", err)
	}
	s := &SSHD{User: me.Username, processes: make(map[int]bool)}
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		err := os.Mkdir(privilegeSeparationDir, 0o755)
		if s.madeDir = err == nil; err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("making sshd's directory: %w", err)
		}
	}
	conf, err := s.lay(dir, config)
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command(program, "-t", "-f", conf).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("sshd does not take its configuration: %w: %s", err, out)
	}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s.Address = s.listener.Addr().String()
	s.serving.Go(func() { s.accept(program, conf) })
	return s, nil
}

func findSSHD() (string, error) {
	for _, p := range sshdPlaces {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", ErrNoSSHD
}

// lay writes keys and configuration and returns the path of the latter.
func (s *SSHD) lay(dir string, config []string) (string, error) {
	hostPEM, hostLine, err := newKey()
	if err != nil {
		return "", err
	}
	clientPEM, clientLine, err := newKey()
	if err != nil {
		return "", err
	}
	s.HostKey, s.ClientKey = hostLine, clientPEM
	at := func(name string) string { return filepath.Join(dir, name) }
	lines := append(append([]string{}, config...),
		fmt.Sprintf("HostKey %q", at("host_key")),
		fmt.Sprintf("AuthorizedKeysFile %q", strings.ReplaceAll(at("authorized_keys"), "%", "%%")),
		"AuthenticationMethods publickey",
		"PermitRootLogin prohibit-password",
		"UsePAM no",
		"StrictModes no", // dir may lie under a directory of others, such as /tmp
		"PidFile none",
		"PrintMotd no",
		"LogLevel VERBOSE",
	)
	for name, content := range map[string][]byte{
		"host_key":        hostPEM,
		"authorized_keys": []byte(clientLine + "\n"),
		"sshd_config":     []byte(strings.Join(lines, "\n") + "\n"),
	} {
		if err := os.WriteFile(at(name), content, 0o600); err != nil {
			return "", fmt.Errorf("laying out sshd's files: %w", err)
		}
	}
	return at("sshd_config"), nil
}

// newKey returns an Ed25519 private key in PEM and its public line.
func newKey() (private []byte, line string, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("making a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		return nil, "", fmt.Errorf("writing a key: %w", err)
	}
	sshPub, err := ssh.NewPublicKey(pub)
	if err != nil {
		return nil, "", fmt.Errorf("writing a public key: %w", err)
	}
	return pem.EncodeToMemory(block), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(sshPub))), nil
}

// accept hands each connection to an sshd until the listener is closed.
func (s *SSHD) accept(program, conf string) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.accepted.Add(1)
		if err := s.handOver(conn.(*net.TCPConn), program, conf); err != nil {
			s.logf("handing a connection to sshd: %v\n", err)
		}
	}
}

func (s *SSHD) handOver(conn *net.TCPConn, program, conf string) error {
	defer conn.Close()     // sshd has its own copy
	conn.SetNoDelay(false) // as sshd's own listening would have it
	file, err := conn.File()
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command(program, "-i", "-e", "-f", conf)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = file, file, logWriter{s}
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // what a session left behind may hold the log open
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return net.ErrClosed
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.processes[cmd.Process.Pid] = true
	s.serving.Go(func() {
		cmd.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.processes, cmd.Process.Pid)
	})
	return nil
}

// Signal sends sig to the OpenSSH processes that serve a connection at
// present. The commands that they run are not among them.
func (s *SSHD) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signalLocked(sig)
}

// signalLocked signals process groups: sshd serves one connection with up to
// two processes.
func (s *SSHD) signalLocked(sig syscall.Signal) error {
	var errs []error
	for pid := range s.processes {
		if err := syscall.Kill(-pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("signalling sshd %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// Stop ends the server and its connections and waits for them.
func (s *SSHD) Stop() {
	s.listener.Close()
	s.mu.Lock()
	s.stopped = true
	s.signalLocked(syscall.SIGKILL)
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// Accepted counts the connections that came in.
func (s *SSHD) Accepted() int { return int(s.accepted.Load()) }

// Unmake removes, after Stop, the directory outside its own that StartSSHDIn
// had to make. Only a program that knows of no other sshd may call it.
func (s *SSHD) Unmake() {
	if s.madeDir {
		os.Remove(privilegeSeparationDir)
	}
}

// Log returns what the server has logged so far.
func (s *SSHD) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func (s *SSHD) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.log, format, args...)
}

// logWriter appends to an SSHD's log.
type logWriter struct{ s *SSHD }

func (w logWriter) Write(b []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.log.Write(b)
}
