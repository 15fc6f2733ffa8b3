package yetttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// crashVariable makes the crash tests take every durable call with every fault;
// without it they take a sample.
const crashVariable = "YETT_CRASH"

// The keys of the crash tests' vault are derived once. It has a second set for
// each slot, to change to.
type slotKeyPair struct {
	slot wire.ChallengeSlot
	keys *vault.Keys
}

var crashKeys = sync.OnceValues(func() (pairs map[string]slotKeyPair, err error) {
	pairs = map[string]slotKeyPair{}
	for name, slot := range map[string]string{"old code": vault.SlotRecovery, "new code": vault.SlotRecovery, "new passphrase": vault.SlotPassphrase} {
		kdf := vault.NewKDF()
		keys, e := vault.Derive([]byte(name+" of the crash tests"), kdf)
		err = errors.Join(err, e)
		pairs[name] = slotKeyPair{wire.ChallengeSlot{Name: slot, Salt: kdf.Salt, Time: kdf.Time, MemoryKiB: kdf.MemoryKiB, Threads: kdf.Threads, Form: kdf.Form}, keys}
	}
	return pairs, err
})

func (p slotKeyPair) request() wire.SlotSet {
	return wire.SlotSet{Slot: p.slot, UnlockKey: bytes.Clone(p.keys.Unlock), ApprovalKey: bytes.Clone(p.keys.Approval)}
}

// crash is one run of one scenario with one fault.
type crash struct {
	t     *testing.T
	b     *Broker
	fault fault
	keys  map[string]slotKeyPair

	said   error // of what was done under the fault; nil: it reported success
	killed bool
}

// scenario is something that writes the vault, or a copy of it.
type scenario struct {
	name string
	act  func(c *crash) error // in the broker, which is unlocked and injected
	// isNew tells whether what lies in the file is what act wanted. It fails if
	// it is neither that nor what was there before.
	isNew func(c *crash, v *vault.Vault) bool
}

const crashAccess = demoAccess + `
[capability."http:demo.more"]
credential = "more"
methods    = ["GET"]
paths      = ["/x"]
`

var scenarios = []scenario{
	{"secret set", func(c *crash) error {
		return c.request(wire.MethodSecretSet, wire.SecretSet{Name: "more", Value: []byte("more of the values")})
	}, func(c *crash, v *vault.Vault) bool { return c.value(v, "more", "more of the values") }},
	{"apply", func(c *crash) error {
		return c.request(wire.MethodAccessApply, wire.AccessApply{File: crashAccess})
	}, func(c *crash, v *vault.Vault) bool {
		policy, err := v.Policy()
		if err != nil || string(policy) != demoAccess && string(policy) != crashAccess {
			c.t.Errorf("the access file is neither the old nor the new one: %v", err)
		}
		return string(policy) == crashAccess
	}},
	{"passphrase", func(c *crash) error {
		return c.request(wire.MethodVaultSetSlot, c.keys["new passphrase"].request())
	}, func(c *crash, v *vault.Vault) bool { return c.opensWith("new passphrase") }},
	{"recovery code", func(c *crash) error {
		return c.request(wire.MethodVaultSetSlot, c.keys["new code"].request())
	}, func(c *crash, v *vault.Vault) bool { return c.opensWith("new code") }},
}

// request makes one management request with the old passphrase's proof.
func (c *crash) request(method string, request any) error {
	return c.requestBy(template.keys, method, request)
}

func (c *crash) requestBy(keys *vault.Keys, method string, request any) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, c.b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	if err != nil {
		return err
	}
	defer conn.Close()
	m := managed(c.t, request, nil)
	if method != wire.MethodVaultUnlock {
		var ch wire.Challenge
		if err := conn.Call(ctx, wire.MethodVaultChallenge, managed(c.t, wire.Empty{}, nil), &ch); err != nil {
			return err
		}
		m.Proof = &wire.Proof{Nonce: ch.Nonce, MAC: vault.Proof(keys.Approval, approval.ProofMessage(method, m.Request, ch.Nonce))}
	}
	return conn.Call(ctx, method, m, nil)
}

// load opens the file as it lies, with whichever of the keys opens it.
func (c *crash) load() *vault.Vault {
	c.t.Helper()
	v, err := vault.Load(c.b.Home)
	if err != nil {
		c.t.Fatalf("neither the old vault nor the new one: %v", err)
	}
	c.t.Cleanup(v.Lock)
	if v.Unlock(vault.SlotPassphrase, template.keys.Unlock) != nil && v.Unlock(vault.SlotPassphrase, c.keys["new passphrase"].keys.Unlock) != nil {
		c.t.Fatal("neither the old passphrase nor the new one opens the vault")
	}
	return v
}

// opensWith reports whether a new way in works. The old one must work exactly
// if it does not, and the other slot in any case.
func (c *crash) opensWith(name string) bool {
	c.t.Helper()
	opens := func(slot string, keys *vault.Keys) bool {
		v, err := vault.Load(c.b.Home)
		must(c.t, err)
		defer v.Lock()
		return v.Unlock(slot, keys.Unlock) == nil
	}
	old, other := opens(vault.SlotPassphrase, template.keys), opens(vault.SlotRecovery, c.keys["old code"].keys)
	if name == "new code" {
		old, other = other, old
	}
	isNew := opens(c.keys[name].slot.Name, c.keys[name].keys)
	if isNew == old || !other {
		c.t.Errorf("%s opens: %v, the old one: %v, the other slot: %v", name, isNew, old, other)
	}
	return isNew
}

// value reports whether a name has its value; it must have this one or none.
func (c *crash) value(v *vault.Vault, name, want string) bool {
	c.t.Helper()
	infos, err := v.Secrets()
	must(c.t, err)
	for _, i := range infos {
		if i.Name == name && i.Set {
			must(c.t, v.Use(name, vault.Declared{Name: i.Name, Kind: i.Kind, Place: i.Place}, func(s []byte) error {
				if string(s) != want {
					c.t.Errorf("%s has another value", name)
				}
				return nil
			}))
			return true
		}
	}
	return false
}

// crashHome is a home with a vault that has something in it, made once.
var crashHome = struct {
	sync.Once
	files map[string][]byte
}{files: map[string][]byte{}}

func newCrash(t *testing.T, f fault) *crash {
	t.Helper()
	keys, err := crashKeys()
	must(t, err)
	b := New(t)
	c := &crash{t: t, b: b, fault: f, keys: keys}
	crashHome.Do(func() {
		b.Serve()
		b.Unlock()
		b.Apply(demoAccess)
		b.SetSecret("demo", canary)
		must(t, c.request(wire.MethodVaultSetSlot, keys["old code"].request()))
		b.Stop()
		entries, err := os.ReadDir(b.Home)
		must(t, err)
		for _, e := range entries {
			if e.Type().IsRegular() && !strings.HasSuffix(e.Name(), ".lock") {
				crashHome.files[e.Name()], err = os.ReadFile(filepath.Join(b.Home, e.Name()))
				must(t, err)
			}
		}
	})
	for name, file := range crashHome.files {
		must(t, os.WriteFile(filepath.Join(b.Home, name), file, 0o600))
	}
	return c
}

// run does it once, under the fault, and checks what is left.
func (c *crash) run(s scenario) (calls []string) {
	c.t.Helper()
	in := c.b.serveInjected()
	c.b.Unlock()
	in.arm(c.fault)
	c.said = s.act(c)
	calls, c.killed = in.disarm()
	if c.killed {
		c.b.cmd.Wait()
		c.b.cmd = nil
	}
	if c.fault.at == 0 && c.said != nil {
		c.t.Fatalf("without a fault: %v", c.said)
	}
	isNew := c.check(s)
	if !c.killed { // the broker goes on with what is on the disk
		keys := template.keys
		if s.name == "passphrase" && isNew {
			keys = c.keys["new passphrase"].keys
		}
		if err := c.requestBy(keys, wire.MethodSecretRotate, wire.SecretSet{Name: "demo", Value: []byte(canary + "2")}); err != nil {
			c.t.Errorf("the next save: %v", err)
		}
		c.b.Stop()
	}
	c.afterwards(s)
	return calls
}

// check holds what lies in the files against what was said.
func (c *crash) check(s scenario) (isNew bool) {
	c.t.Helper()
	v := c.load()
	isNew = s.isNew(c, v)
	if !c.value(v, "demo", canary) {
		c.t.Error("a value that was not touched is gone")
	}
	if c.said == nil && !isNew {
		c.t.Error("success was reported, and nothing is changed")
	}
	if !c.killed && c.said != nil && isNew && s.name != "secret set" && s.name != "apply" && !strings.Contains(c.said.Error(), "was changed, but") {
		c.t.Errorf("it is changed, and was reported as %v", c.said)
	}
	c.wholeFiles()
	return isNew
}

// wholeFiles: the previous generation is whole, and whatever a writer left
// behind can be read by nobody else.
func (c *crash) wholeFiles() {
	c.t.Helper()
	previous, err := os.ReadFile(filepath.Join(c.b.Home, vault.FileName+".prev"))
	if err == nil {
		_, err = vault.Parse(previous)
	}
	if err != nil {
		c.t.Errorf("the previous generation: %v", err)
	}
	must(c.t, filepath.WalkDir(c.b.Home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			c.t.Errorf("%s has mode %v", d.Name(), info.Mode())
		}
		return err
	}))
}

// afterwards starts an ordinary broker on what is left: it opens, saves, sweeps
// and has a good ledger, in which a change that took effect was announced.
func (c *crash) afterwards(s scenario) {
	c.t.Helper()
	v := c.load()
	isNew := s.isNew(c, v)
	v.Lock()
	keys := template.keys
	if s.name == "passphrase" && isNew {
		keys = c.keys["new passphrase"].keys
	}
	c.b.Serve()
	must(c.t, c.requestBy(nil, wire.MethodVaultUnlock, wire.Unlock{Slot: vault.SlotPassphrase, UnlockKey: bytes.Clone(keys.Unlock)}))
	if err := c.requestBy(keys, wire.MethodSecretRotate, wire.SecretSet{Name: "demo", Value: []byte(canary)}); err != nil {
		c.t.Errorf("saving after a crash: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.b.Home, ".vault.yett.tmp-*")); len(left) > 0 {
		c.t.Errorf("leftovers %v", left)
	}
	c.b.Stop()
	if r := c.b.RunPlain("audit", "verify", "--json"); r.Code != 0 {
		c.t.Errorf("audit: %s%s", r.Stdout, r.Stderr)
	}
}

// TestV01_BrokerCrashes: whatever writes the vault is killed before each call
// that makes something durable, and each such call fails. The old state or the
// new one opens, never neither, and the broker goes on.
func TestV01_BrokerCrashes(t *testing.T) {
	total := 0
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			calls := newCrash(t, fault{}).run(s)
			total += crashes(t, calls, func(t *testing.T, f fault) []string { return newCrash(t, f).run(s) })
		})
	}
	t.Logf("%d distinct points", total)
}

// crashes runs every fault at every call, or a sample of them, and returns how
// many there are. How many calls a run makes depends on which rows happen to
// share a group: where one had ended before the call of its fault there is
// another, from the beginning.
func crashes(t *testing.T, calls []string, run func(t *testing.T, f fault) (calls []string)) (points int) {
	t.Helper()
	if len(calls) < 5 {
		t.Fatalf("only the calls %v were seen", calls)
	}
	seen := map[string]bool{}
	for i, name := range calls {
		kinds := faultsAt(i+1, name)
		points += len(kinds)
		if os.Getenv(crashVariable) == "" { // the first call of each name, every second, one kind of fault in turn
			if seen[name] {
				continue
			}
			seen[name] = true
			n := len(seen) + len(t.Name()) // not the same ones everywhere
			if n%2 == 0 {
				continue
			}
			kinds = kinds[n/2%len(kinds):][:1]
		}
		for _, f := range kinds {
			t.Run(fmt.Sprintf("%s (%s)", f, name), func(t *testing.T) {
				for range 5 {
					if made := run(t, f); len(made) >= f.at || t.Failed() {
						return
					}
				}
				t.Log("not reached")
			})
		}
	}
	t.Logf("%d calls, %d points: %s", len(calls), points, strings.Join(calls, " "))
	return points
}

// command runs yett under the fault, with a passphrase, and returns what it
// said; killed is whether it got so far.
func (c *crash) command(args ...string) (calls []string, r Result) {
	c.t.Helper()
	cmd := c.b.secretCommand(pass(Passphrase), args...)
	defer closeFiles(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	started := injected(c.t, cmd)
	must(c.t, cmd.Start())
	in := started()
	in.arm(c.fault)
	err := cmd.Wait()
	calls, c.killed = in.disarm()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return calls, Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// TestV01_BackupCrashes: a backup that was not finished is never taken for one.
func TestV01_BackupCrashes(t *testing.T) {
	base := newCrash(t, fault{})
	base.b.Serve()
	base.b.Unlock()
	run := func(t *testing.T, f fault) []string {
		c := &crash{t: t, b: base.b, fault: f}
		file := filepath.Join(t.TempDir(), "backup")
		calls, r := c.command("vault", "backup", file)
		v, err := vault.ReadBackup(file)
		_, gone := os.Lstat(file)
		switch {
		case r.Code == 0 && err != nil:
			t.Errorf("success was reported, and there is no backup: %v", err)
		case r.Code != 0 && !c.killed && f.at < 5 && gone == nil: // the fifth comes when the file is whole
			t.Errorf("a failed backup is left\n%s", r.Stderr)
		case err != nil && !errors.Is(err, vault.ErrDamaged) && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("what is left: %v", err)
		case err == nil && v.Unlock(vault.SlotPassphrase, template.keys.Unlock) != nil:
			t.Error("the backup does not open")
		}
		if f.at != 0 && !c.killed && r.Code == 0 {
			t.Errorf("a failing disk was not noticed (%v)", calls)
		}
		if info, err := os.Lstat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("mode %v", info.Mode())
		}
		return calls
	}
	crashes(t, run(t, fault{}), run)
}

// TestV01_RestoreCrashes: the vault that was there or the backup is in place,
// whole; and where the backup is, the other is kept and the ledger will know.
func TestV01_RestoreCrashes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup")
	newCrash(t, fault{}) // makes the home
	must(t, os.WriteFile(file, crashHome.files[vault.FileName], 0o600))
	run := func(t *testing.T, f fault) []string {
		c := newCrash(t, f)
		present, err := vault.Load(c.b.Home)
		must(t, err)
		must(t, present.Unlock(vault.SlotPassphrase, template.keys.Unlock))
		defer present.Lock()
		must(t, present.RemoveSecret("demo"))
		calls, r := c.command("vault", "restore", file, "--older")
		v := c.load()
		isBackup := c.value(v, "demo", canary)
		if r.Code == 0 && !isBackup {
			t.Error("success was reported, and nothing was restored")
		}
		if isBackup {
			c.restoreIsKnown(v, present)
		} else if v.Generation() != present.Generation() {
			t.Errorf("generation %d is neither", v.Generation())
		}
		c.wholeFiles()
		// Once more, without a fault, on what is left.
		c.fault = fault{}
		if _, r := c.command("vault", "restore", file, "--older"); r.Code != 0 {
			t.Errorf("the next restore: %s", r.Stderr)
		}
		if left, _ := filepath.Glob(filepath.Join(c.b.Home, ".vault.yett.tmp-*")); len(left) > 0 {
			t.Errorf("leftovers %v", left)
		}
		return calls
	}
	crashes(t, run(t, fault{}), run)
}

// TestV01_InitCrashes: there is no vault afterwards, and init makes one, or
// there is one that opens with the passphrase that was given.
func TestV01_InitCrashes(t *testing.T) {
	run := func(t *testing.T, f fault) []string {
		c := newCrash(t, f)
		must(t, os.RemoveAll(c.b.Home))
		calls, r := c.command("init")
		if _, err := vault.Load(c.b.Home); errors.Is(err, vault.ErrNoVault) {
			if r.Code == 0 {
				t.Error("success was reported, and there is no vault")
			}
			c.fault = fault{}
			if _, r := c.command("init"); r.Code != 0 {
				t.Errorf("the next init: %s", r.Stderr)
			}
		}
		c.b.Serve()
		if !c.b.opens(Passphrase) {
			t.Error("the vault does not open")
		}
		return calls
	}
	crashes(t, run(t, fault{}), run)
}

// restoreIsKnown: the replaced file is kept byte for byte, and the vault in its
// place says what it replaced.
func (c *crash) restoreIsKnown(v, present *vault.Vault) {
	c.t.Helper()
	notes, err := v.Unrecorded()
	must(c.t, err)
	if len(notes) != 1 || notes[0].Replaced != present.Generation() {
		c.t.Errorf("notes %+v", notes)
	}
	asides, err := filepath.Glob(filepath.Join(c.b.Home, vault.FileName+".replaced-*"))
	must(c.t, err)
	for _, a := range asides {
		if kept, err := os.ReadFile(a); err == nil && bytes.Equal(kept, present.Image()) {
			return
		}
	}
	c.t.Errorf("what was replaced is not among %v", asides)
}

// TestV01_ShortWrite: the kernel takes a part of the new vault and no more. The
// vault is large, so that the ledger's rows still fit under the limit.
func TestV01_ShortWrite(t *testing.T) {
	b := New(t)
	b.Serve()
	b.Unlock()
	var access strings.Builder
	for i := range 12 {
		fmt.Fprintf(&access, "[credential.big%d]\nkind = \"bearer\"\norigin = \"https://api.example\"\n", i)
	}
	b.Apply(access.String())
	for i := range 12 {
		b.SetSecret(fmt.Sprintf("big%d", i), strings.Repeat("0123456789abcdef", 4000))
	}
	path := filepath.Join(b.Home, vault.FileName)
	before, err := os.ReadFile(path)
	must(t, err)
	for _, name := range []string{"ledger.db", "ledger.db-wal"} {
		if info, err := os.Stat(filepath.Join(b.Home, name)); err != nil || info.Size() > int64(len(before))-200_000 {
			t.Fatalf("%s is too large for this test: %v", name, err)
		}
	}
	limit := fmt.Sprintf("--fsize=%d:unlimited", len(before)-1000)
	if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(b.PID()), limit).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	wantExit(t, b.RunWith(strings.Repeat("fedcba9876543210", 4000), Passphrase, "secret", "rotate", "big0"), 1, "nothing was changed")
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the vault was touched: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.Home, ".vault.yett.tmp-*")); len(left) > 0 {
		t.Errorf("leftovers %v", left)
	}
	if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(b.PID()), "--fsize=unlimited:unlimited").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	wantExit(t, b.RunWith(canary, Passphrase, "secret", "rotate", "big0"), 0)
	b.Restart()
	wantExit(t, b.Run("secret", "list"), 0, "big11")
}
