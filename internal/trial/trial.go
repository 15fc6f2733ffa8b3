// Package trial is the demonstration that yett try shows: a demo API, an SSH
// server, a broker in a scratch home and an agent, all of them real, and the
// real command line, run as a person would. It then tries what must not work,
// searches everything for the secrets that it planted, and says of each claim
// whether it was proven.
//
// It trusts nothing that it shows: a claim that was not checked is not proven,
// and one that failed once stays failed. Whatever it started is ended, and
// whatever it made removed, however it ends.
package trial

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/demo"
	"github.com/yett-broker/yett/internal/endpoint"
)

// Options say how the demonstration is shown.
type Options struct {
	Story  io.Writer
	Yes    bool     // it approves by itself; otherwise a person does,
	Stdin  *os.File // on this terminal
	Stderr *os.File
	Shim   string // the installed yett-mcp; yett lies beside it
}

// Result is what a demonstration came to.
type Result struct {
	Claims []Claim
	Dir    string // its scratch directory
	Clean  bool   // nothing of it is left behind
}

// Run shows the whole demonstration. An error says why it did not come to its
// end; the result stands in either case.
func Run(ctx context.Context, o Options) (Result, error) {
	t := newTrial(o)
	err := t.run(ctx)
	t.cleanUp()
	r := Result{Dir: t.dir, Clean: t.holds(claimClean)}
	for _, c := range t.claims {
		r.Claims = append(r.Claims, *c)
	}
	return r, err
}

// trial is one demonstration.
type trial struct {
	out        io.Writer // the story
	yes        bool      // the demonstration approves by itself
	stdin      *os.File  // where a person is asked, and
	stderr     *os.File
	self, shim string // the installed programs

	dir, home   string // dir is private and removed at the end; home lies in it
	environment []string

	token, passphrase []byte
	search            *search
	claims            []*Claim
	chapter           int
	undo              []func() // at the end, last first

	api     *demo.API
	host    *demo.SSHD
	command string // that the agent runs on the host
	probes  int    // connections to the host that were ours
	broker  *process

	agent    *process
	received record // every byte that the agent had from the shim
	mirrored chan struct{}
}

func newTrial(o Options) *trial {
	t := &trial{out: o.Story, yes: o.Yes, stdin: o.Stdin, stderr: o.Stderr, shim: o.Shim, self: filepath.Join(filepath.Dir(o.Shim), "yett"),
		search: newSearch(), claims: newClaims(), token: []byte("demo_" + random(20)), passphrase: []byte("demo " + random(2) + " " + random(2) + " " + random(2))}
	if self, err := os.Executable(); err == nil {
		t.self = self
	}
	for _, name := range []string{"PATH", "LANG", "TZ", "TERM"} {
		if v, ok := os.LookupEnv(name); ok {
			t.environment = append(t.environment, name+"="+v)
		}
	}
	t.search.canaries.Plant("the API token", t.token)
	t.search.canaries.Plant("the passphrase", t.passphrase)
	return t
}

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (t *trial) atEnd(f func()) { t.undo = append(t.undo, f) }

// cleanUp ends every process that was started and removes every file that was
// made, and settles the claims that only then can be settled.
func (t *trial) cleanUp() {
	for i := len(t.undo) - 1; i >= 0; i-- {
		t.undo[i]()
	}
	t.undo = nil
	if t.dir == "" {
		return
	}
	left := t.search.stillRunning()
	_, err := os.Lstat(t.dir)
	switch {
	case len(left) > 0:
		t.check(claimClean, false, "still running: %v", left)
	case !errors.Is(err, os.ErrNotExist):
		t.check(claimClean, false, "%s is still there", t.dir)
	default:
		t.check(claimClean, true, "all %d processes have ended and %s is removed", len(t.search.processes), t.dir)
	}
}

// run tells the story from its beginning to its end. What it started is ended
// by cleanUp, whatever happened.
func (t *trial) run(ctx context.Context) error {
	fmt.Fprint(t.out, "Yett, the whole job with real parts, in a scratch home that is removed at the end.\n")
	for _, chapter := range []func(context.Context) error{
		t.openPlaces, t.openYett, t.startAgent, t.decide, t.act, t.attack, t.readRecord, t.findSecrets,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// makeDir makes the private directory, under a path that is short enough for a
// socket in it.
func (t *trial) makeDir() error {
	for _, under := range []string{os.TempDir(), "/tmp"} {
		dir, err := os.MkdirTemp(under, "yett-try-")
		if err != nil {
			continue
		}
		loc, err := endpoint.InHome(filepath.Join(dir, "home"))
		if err == nil {
			err = loc.Check()
		}
		if err != nil {
			os.Remove(dir)
			continue
		}
		t.dir, t.home = dir, loc.Home
		t.atEnd(func() { os.RemoveAll(dir) })
		return nil
	}
	return fmt.Errorf("no private directory could be made under %s or /tmp", os.TempDir())
}

// openPlaces starts what wants credentials.
func (t *trial) openPlaces(ctx context.Context) error {
	if err := t.makeDir(); err != nil {
		return err
	}
	t.step("Two places that want a credential")
	var err error
	if t.api, err = demo.StartAPI(t.token); err != nil {
		return fmt.Errorf("starting the demo API: %w", err)
	}
	t.atEnd(t.api.Stop)
	t.say("an API at %s wants a token", t.api.Origin)
	return t.openHost()
}

// openHost starts an OpenSSH server, or the one inside this program where
// there is none or where it does not let this account in.
func (t *trial) openHost() error {
	files := filepath.Join(t.dir, "sshd")
	if err := os.Mkdir(files, 0o700); err != nil {
		return fmt.Errorf("starting an SSH server: %w", err)
	}
	host, why := demo.StartSSHDIn(files, "PermitUserRC no", "PrintLastLog no")
	if why == nil {
		t.atEnd(func() { host.Stop(); host.Unmake() })
		if t.command, why = probe(host); why == nil {
			t.host, t.probes = host, host.Accepted()
			t.say("a host at %s wants a private key (OpenSSH)", host.Address)
			return t.search.canaries.PlantKey("the SSH key", host.ClientKey)
		}
	}
	var err error
	if t.host, err = demo.StartBuiltinSSHD(); err != nil {
		return fmt.Errorf("starting an SSH server: %w", err)
	}
	t.atEnd(t.host.Stop)
	t.command = "uptime"
	t.say("a host at %s wants a private key (the small SSH server inside yett; OpenSSH cannot be used here: %v)", t.host.Address, why)
	return t.search.canaries.PlantKey("the SSH key", t.host.ClientKey)
}

// probe finds a command that works for this account on the host.
func probe(host *demo.SSHD) (command string, err error) {
	key, err := ssh.ParsePrivateKey(host.ClientKey)
	if err != nil {
		return "", err
	}
	listed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(host.HostKey))
	if err != nil {
		return "", err
	}
	conn, err := net.DialTimeout("tcp", host.Address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	c, channels, requests, err := ssh.NewClientConn(conn, host.Address, &ssh.ClientConfig{
		User: host.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(listed),
	})
	if err != nil {
		return "", err
	}
	client := ssh.NewClient(c, channels, requests)
	defer client.Close()
	for _, command = range []string{"uptime", "date"} {
		s, err := client.NewSession()
		if err != nil {
			return "", err
		}
		err = s.Run(command)
		s.Close()
		if err == nil {
			return command, nil
		}
	}
	return "", errors.New("the account may log in but runs no command")
}
