package yetttest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// deedHome is a home from which each crash starts anew, with the places where
// its deeds are counted.
type deedHome struct {
	up    *Upstream
	runs  string // a directory with a line in a file for each run over SSH
	files map[string][]byte
}

const deedAccess = `
[credential.key]
kind = "ssh-key"

[host.web]
address = %q
user = %q
key = "key"
host_keys = [%q]

[capability."ssh:web.count"]
host = "web"
commands = [%q]
`

func newDeedHome(t *testing.T) *deedHome {
	t.Helper()
	d := &deedHome{up: StartUpstream(t, canary), runs: t.TempDir(), files: map[string][]byte{}}
	must(t, os.WriteFile(d.script(), []byte("echo once >> \"$(dirname \"$0\")/$1\"\n"), 0o600))
	sshd := reachableSSHD(t)
	b := Start(t, d.up.Access()+fmt.Sprintf(deedAccess, sshd.Address, sshd.User, sshd.HostKey, "sh "+d.script()+" *"),
		"demo", canary, "key", string(sshd.ClientKey))
	b.Stop()
	entries, err := os.ReadDir(b.Home)
	must(t, err)
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasSuffix(e.Name(), ".lock") {
			d.files[e.Name()], err = os.ReadFile(filepath.Join(b.Home, e.Name()))
			must(t, err)
		}
	}
	return d
}

func (d *deedHome) script() string { return filepath.Join(d.runs, "count.sh") }

// broker has a copy of the home, and does not run.
func (d *deedHome) broker(t *testing.T) *Broker {
	t.Helper()
	b := New(t)
	for name, file := range d.files {
		must(t, os.WriteFile(filepath.Join(b.Home, name), file, 0o600))
	}
	return b
}

// deed is an action that must not happen twice.
type deed struct {
	capability string
	action     func(d *deedHome, id string) client.Action
	times      func(d *deedHome, id string) int // that it happened
}

var httpDeed = deed{"http:demo.write", func(_ *deedHome, id string) client.Action {
	method, path := "POST", "/v1/"+id
	return client.Action{Method: &method, Path: &path}
}, func(d *deedHome, id string) (n int) {
	for _, seen := range d.up.Seen() {
		if seen == "POST /v1/"+id {
			n++
		}
	}
	return n
}}

var sshDeed = deed{"ssh:web.count", func(d *deedHome, id string) client.Action {
	command := "sh " + d.script() + " " + id
	return client.Action{Command: &command}
}, func(d *deedHome, id string) int {
	lines, _ := os.ReadFile(filepath.Join(d.runs, id))
	return bytes.Count(lines, []byte("once"))
}}

// attempt is one deed under one fault, and what became of it.
type attempt struct {
	t *testing.T
	d *deedHome
	deed
	b      *Broker
	id     string
	op     client.Operation
	said   error
	killed bool
}

// session opens one that was granted the deed. It is the same process each
// time, as an agent is that connects again.
func (a *attempt) session() *client.Session {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, a.b.Location(), client.Options{Program: "test", Role: wire.RoleNative})
	must(a.t, err)
	a.t.Cleanup(func() { conn.Close() })
	s, err := conn.OpenSession(ctx, []string{a.capability}, "")
	must(a.t, err)
	a.b.Approve(a.b.WaitCard(), "--for", "1h")
	r, err := s.Wait(ctx, 30_000)
	if must(a.t, err); len(r.Capabilities) != 1 {
		a.t.Fatalf("not granted: %+v", r)
	}
	return s
}

func (a *attempt) do(s *client.Session, key string) (client.Operation, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return s.Do(ctx, a.capability, a.action(a.d, a.id), key, 30_000)
}

// run is the deed, and the lock after it, which brings everything to the disk:
// intent, outcome, the rows in the database, a head, and that head in the vault.
func (a *attempt) run(f fault) (calls []string) {
	a.t.Helper()
	in := a.b.serveInjected()
	a.b.Unlock()
	s := a.session()
	in.arm(f)
	a.op, a.said = a.do(s, a.id)
	locked := a.b.try(wire.MethodVaultLock, wire.Empty{})
	if calls, a.killed = in.disarm(); a.killed {
		a.b.cmd.Wait()
		a.b.cmd = nil
	} else if locked != nil {
		a.t.Errorf("locking, which must always work: %v", locked)
	}
	if f.at == 0 && (a.said != nil || a.op.State != "completed") {
		a.t.Fatalf("without a fault: %+v %v", a.op, a.said)
	}
	return calls
}

// try is a request of management without a proof whose failure is no end.
func (b *Broker) try(method string, request any) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Call(ctx, method, managed(b.T, request, nil), nil)
}

// check holds what was said, what happened and what is known against each
// other: at once where the broker lives, and after a start.
func (a *attempt) check() {
	a.t.Helper()
	n := a.times(a.d, a.id)
	switch {
	case n > 1:
		a.t.Errorf("it happened %d times", n)
	case a.said == nil && (a.op.State != "completed" || n != 1):
		a.t.Errorf("it happened %d times, and was said to be %s", n, a.op.State)
	case a.said != nil && !a.killed && (!errors.Is(a.said, &wire.Error{Code: wire.CodeLedgerUnavailable}) || n != 0):
		a.t.Errorf("it happened %d times, and was said to be %v", n, a.said)
	}
	if !a.killed {
		a.b.Unlock()
		a.again("beside the fault")
		a.b.Stop()
	}
	a.b.Serve()
	a.b.Unlock()
	a.again("after a start")
	a.b.Stop()
	v, err := vault.Load(a.b.Home)
	must(a.t, err)
	must(a.t, v.Unlock(vault.SlotPassphrase, template.keys.Unlock))
	defer v.Lock()
	a.b.wantGoodLedger(v)
}

// again repeats the request as an agent does that heard nothing: with its key,
// and, where the outcome is unknown, without.
func (a *attempt) again(when string) {
	a.t.Helper()
	s, before := a.session(), a.times(a.d, a.id)
	var op client.Operation
	var err error
	for deadline := time.Now().Add(Patience); ; time.Sleep(50 * time.Millisecond) {
		op, err = a.do(s, a.id)
		if !errors.Is(err, &wire.Error{Code: wire.CodeLedgerUnavailable}) || time.Now().After(deadline) {
			break // nothing was done, and the ledger tries again each second
		}
	}
	must(a.t, err)
	if a.op.OperationID != "" && op.OperationID != a.op.OperationID {
		a.t.Errorf("%s: a second operation for one key", when)
	}
	if !a.killed && a.said == nil && op.State != "completed" {
		a.t.Errorf("%s: what was completed is %s", when, op.State)
	}
	switch op.State {
	case "completed":
		a.op = op // also if it happened only now
	case "indeterminate":
		if _, err := a.do(s, ""); !errors.Is(err, &wire.Error{Code: wire.CodeOutcomeUnknown}) {
			a.t.Errorf("%s: the equal action without a key: %v", when, err)
		}
	default:
		a.t.Errorf("%s: it is %s", when, op.State)
	}
	if n := a.times(a.d, a.id); n > 1 || op.State == "completed" && n != 1 || op.State == "indeterminate" && n != before {
		a.t.Errorf("%s: it happened %d times, then %d, and is %s", when, before, n, op.State)
	}
}

func (b *Broker) wantGoodLedger(v *vault.Vault) {
	b.T.Helper()
	key, err := v.AuditPrivateKey()
	must(b.T, err)
	o, err := ledger.NewOpener(key)
	must(b.T, err)
	if r, err := ledger.Verify(context.Background(), b.Home, o, nil); err != nil || !r.OK {
		b.T.Errorf("the ledger: %v %v", r.Problems, err)
	}
}

// TestA06_ActionCrashes: while a POST or a command over SSH is under way the
// broker is killed before each call that makes something durable, or in the
// middle of it, and each such call fails or does half. The API and the server
// count: it happened once or not at all, however often the agent asks again.
func TestA06_ActionCrashes(t *testing.T) {
	home := newDeedHome(t)
	for name, deed := range map[string]deed{"HTTP POST": httpDeed, "SSH run": sshDeed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T, f fault) []string {
				a := &attempt{t: t, d: home, deed: deed, b: home.broker(t), id: strings.ToLower(rand.Text())}
				calls := a.run(f)
				a.check()
				return calls
			}
			crashes(t, run(t, fault{}), run)
		})
	}
}

// TestA03_AcknowledgeCrashes: a quarantine that a person acknowledges is over
// or is not, never something between, and lets nothing run until it is.
func TestA03_AcknowledgeCrashes(t *testing.T) {
	home := newDeedHome(t)
	home.files = maps.Clone(home.files)
	delete(home.files, ledger.HeadFile) // what makes it be in quarantine
	run := func(t *testing.T, f fault) []string {
		c := &crash{t: t, b: home.broker(t), fault: f}
		in := c.b.serveInjected()
		c.b.Unlock()
		in.arm(f)
		acknowledge := func() error {
			return c.request(wire.MethodLedgerAccept, wire.Acknowledge{Note: "it was me"})
		}
		said := acknowledge()
		calls, killed := in.disarm()
		if killed {
			c.b.cmd.Wait()
			c.b.cmd = nil
		} else {
			c.b.Stop()
		}
		c.b.Serve()
		c.b.Unlock()
		a := &attempt{t: t, d: home, deed: httpDeed, b: c.b, id: strings.ToLower(rand.Text())}
		s := a.session()
		_, err := a.do(s, "")
		switch quarantined := errors.Is(err, &wire.Error{Code: wire.CodeQuarantined}); {
		case quarantined && said == nil && !killed:
			t.Error("success was reported, and the quarantine is there")
		case quarantined:
			if n := a.times(home, a.id); n != 0 {
				t.Errorf("in quarantine it happened %d times", n)
			}
			must(t, acknowledge())
			_, err = a.do(s, "")
			must(t, err)
		case err != nil:
			t.Errorf("neither quarantined nor well: %v", err)
		}
		if n := a.times(home, a.id); n != 1 {
			t.Errorf("it happened %d times", n)
		}
		c.b.Stop()
		c.b.wantGoodLedger(c.load())
		return calls
	}
	calls := run(t, fault{})
	if !slices.Contains(calls, "rename") {
		t.Fatalf("no head was put in place: %v", calls)
	}
	crashes(t, calls, run)
}
