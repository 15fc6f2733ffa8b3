package yetttest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

const another = "another passphrase, café"

// TestVaultPassphrase: the new passphrase opens, the old one does not, the
// recovery code does, also after a crash; and the change is a row.
func TestVaultPassphrase(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	code := b.newCode(Passphrase)
	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase", "--json")
	wantExit(t, r, 0)
	var said struct {
		Slot       string
		Generation uint64
		Warning    string
	}
	r.JSON(t, &said)
	if said.Slot != "passphrase" || said.Generation == 0 || said.Warning != "" {
		t.Errorf("%s", r.Stdout)
	}
	if rows := b.rowsWith(another, "slot.set"); len(rows) != 2 || !strings.Contains(string(rows[1].Request), `"passphrase"`) {
		t.Errorf("rows %+v", rows)
	}
	b.Kill()
	b.Serve()
	decomposed := strings.Replace(another, "é", "e\u0301", 1)
	if b.opens(Passphrase) || !b.opens(another) || !b.opens(decomposed) || !b.opens(code) {
		t.Error("what opens the vault is not what was set")
	}
	for _, name := range []string{vault.FileName, vault.FileName + ".prev"} { // nothing on disk opens with the old one
		image, err := os.ReadFile(filepath.Join(b.Home, name))
		must(t, err)
		v, err := vault.Parse(image)
		must(t, err)
		for _, s := range v.Slots() {
			if s.Name == vault.SlotPassphrase {
				keys, err := vault.Derive([]byte(Passphrase), s.KDF)
				must(t, err)
				if v.Unlock(s.Name, keys.Unlock) == nil || v.Unlock(s.Name, template.keys.Unlock) == nil {
					t.Errorf("%s opens with the old passphrase", name)
				}
			}
		}
	}
}

// TestF3_OldProofsAreVoid: with the passphrase go the cards that wait, what was
// opened for reading, and nonces; a running session goes on.
func TestF3_OldProofsAreVoid(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	running := b.Granted("http:demo.read")
	waiting := b.Open()
	waiting.OpenSession("http:demo.write")
	b.WaitCard()

	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	must(t, err)
	defer conn.Close()
	b.reading(conn)
	foreign := func() (n int) { // rows that belong to no session of this process
		var l wire.List[Row]
		must(t, conn.Call(ctx, wire.MethodActivityList, managed(t, wire.ActivityList{From: 1, Limit: 10}, nil), &l))
		for _, row := range l.Items {
			if row.SessionID == "" {
				n++
			}
		}
		return n
	}
	if foreign() == 0 {
		t.Fatal("the proof opened no reading")
	}
	var challenge wire.Challenge
	must(t, conn.Call(ctx, wire.MethodVaultChallenge, managed(t, wire.Empty{}, nil), &challenge))

	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase")
	wantExit(t, r, 0, "The passphrase is changed.")
	if n := foreign(); n != 0 {
		t.Errorf("%d rows are still read with the old proof", n)
	}
	var cards []Card
	b.RunWith("", another, "pending", "--json").JSON(t, &cards)
	if len(cards) != 0 {
		t.Errorf("%d cards still wait", len(cards))
	}
	waiting.Must(wire.MethodSessionWait, waiting.Next(map[string]any{"wait_ms": 0}), &waiting.Session)
	if s := waiting.Session; s.State == "pending" || s.Pending != nil || len(s.Capabilities) != 0 {
		t.Errorf("the session whose card is void: %+v", s)
	}
	raw := []byte("{}")
	proof := &wire.Proof{Nonce: challenge.Nonce, MAC: vault.Proof(template.keys.Approval, approval.ProofMessage(wire.MethodActivityRead, raw, challenge.Nonce))}
	if err := conn.Call(ctx, wire.MethodActivityRead, wire.Managed{Request: raw, Proof: proof}, nil); err == nil || !strings.Contains(err.Error(), wire.CodeProofInvalid) {
		t.Errorf("a proof by the old passphrase: %v", err)
	}
	if op := running.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); op.State != "completed" {
		t.Errorf("the running session: %+v", op)
	}
}

// TestVaultPassphraseRefused: nothing is changed, and each refusal says what to
// do.
func TestVaultPassphraseRefused(t *testing.T) {
	b := New(t)
	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase")
	wantExit(t, r, 4, "yett up")
	b.Serve()
	r, _ = b.runSecrets(false, passAndNew(Passphrase, another), "vault", "passphrase")
	wantExit(t, r, 5, "yett unlock", "recovery code")
	b.Unlock()
	before, err := os.ReadFile(filepath.Join(b.Home, vault.FileName))
	must(t, err)
	for _, c := range []struct {
		secrets []secretArg
		exit    int
		says    string
	}{
		{passAndNew("wrong horse battery", another), 3, "The proof does not verify"},
		{passAndNew(Passphrase, "short"), 1, "at least 8 characters"},
		{passAndNew(Passphrase, "e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301"), 1, "at least 8 characters"},
		{passAndNew(Passphrase, Passphrase), 1, "That is the present passphrase"},
		{passAndNew(Passphrase, vault.NewRecoveryCode()), 1, "A recovery code is no passphrase"},
		{pass(Passphrase), 3, "--new-passphrase-fd"},
		{[]secretArg{{"--new-passphrase-fd", another}}, 3, "--passphrase-fd"},
	} {
		r, _ := b.runSecrets(false, c.secrets, "vault", "passphrase")
		wantExit(t, r, c.exit, c.says, "next: ")
	}
	r, _ = b.runSecrets(false, pass(Passphrase), "vault", "passphrase", "--new-passphrase-fd", "3")
	wantExit(t, r, 2, "give each its own")
	if now, err := os.ReadFile(filepath.Join(b.Home, vault.FileName)); err != nil || !bytes.Equal(now, before) {
		t.Errorf("a refused change wrote the vault: %v", err)
	}
}

// TestF3_SlotsNeedProof: no message changes what opens the vault, or takes the
// vault away, without a proof of exactly this.
func TestF3_SlotsNeedProof(t *testing.T) {
	b := New(t)
	b.Serve()
	b.Unlock()
	before, err := os.ReadFile(filepath.Join(b.Home, vault.FileName))
	must(t, err)
	kdf := vault.NewKDF()
	mine, err := vault.Derive([]byte("the attacker's own"), kdf)
	must(t, err)
	slot := func(name string) wire.SlotSet {
		return wire.SlotSet{Slot: wire.ChallengeSlot{Name: name, Salt: kdf.Salt, Time: kdf.Time, MemoryKiB: kdf.MemoryKiB, Threads: kdf.Threads, Form: kdf.Form},
			UnlockKey: mine.Unlock, ApprovalKey: mine.Approval}
	}
	for method, request := range map[string]any{wire.MethodVaultSetSlot: slot("passphrase"), wire.MethodVaultBackup: wire.VaultBackup{}} {
		c := b.Open()
		if r := c.Call(method, managed(t, request, nil)); r.Code() != wire.CodeProofRequired {
			t.Errorf("%s without a proof: %q", method, r.Code())
		}
		var challenge wire.Challenge
		c.Must(wire.MethodVaultChallenge, managed(t, wire.Empty{}, nil), &challenge)
		// A proof that the person made for reading, used for something else.
		mac := vault.Proof(template.keys.Approval, approval.ProofMessage(wire.MethodActivityRead, []byte("{}"), challenge.Nonce))
		if r := c.Call(method, managed(t, request, &wire.Proof{Nonce: challenge.Nonce, MAC: mac})); r.Code() != wire.CodeProofInvalid {
			t.Errorf("%s with a proof for reading: %q", method, r.Code())
		}
		// A proof of exactly this, with a nonce of another channel.
		b.Open().Must(wire.MethodVaultChallenge, managed(t, wire.Empty{}, nil), &challenge)
		exact, err := json.Marshal(request)
		must(t, err)
		mac = vault.Proof(template.keys.Approval, approval.ProofMessage(method, exact, challenge.Nonce))
		if r := c.Call(method, managed(t, request, &wire.Proof{Nonce: challenge.Nonce, MAC: mac})); r.Code() != wire.CodeProofInvalid {
			t.Errorf("%s with another channel's nonce: %q", method, r.Code())
		}
		// A proof for another request of the same method.
		c.Must(wire.MethodVaultChallenge, managed(t, wire.Empty{}, nil), &challenge)
		other, err := json.Marshal(slot("recovery"))
		must(t, err)
		mac = vault.Proof(template.keys.Approval, approval.ProofMessage(method, other, challenge.Nonce))
		if r := c.Call(method, managed(t, request, &wire.Proof{Nonce: challenge.Nonce, MAC: mac})); r.Code() != wire.CodeProofInvalid {
			t.Errorf("%s with a proof for something else: %q", method, r.Code())
		}
	}
	if now, err := os.ReadFile(filepath.Join(b.Home, vault.FileName)); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the vault was written: %v", err)
	}
}

func TestVaultRecoveryCode(t *testing.T) {
	b := New(t)
	b.Serve()
	b.Unlock()
	first := b.newCode(Passphrase)
	second := b.newCode(first) // a code proves as the passphrase does
	if first == second {
		t.Fatal("two codes are equal")
	}
	wantExit(t, b.Run("vault", "recovery-code"), 1, "no terminal", "--recovery-fd") // nowhere to show it
	r, shown := b.runSecrets(true, pass("wrong horse battery"), "vault", "recovery-code")
	wantExit(t, r, 3, "The proof does not verify", "not valid; throw it away")
	b.Must("lock")
	if b.opens(first) || b.opens(shown) || !b.opens(second) || !b.opens(Passphrase) {
		t.Error("what opens the vault is not what was set")
	}

	typed := strings.ToLower(strings.ReplaceAll(second, "-", " "))
	typed = strings.NewReplacer("0", "o", "1", "l").Replace(typed)
	wantExit(t, b.RunWith("", typed, "unlock", "--recovery"), 0, "Unlocked")
	b.Must("lock")
	swapped := []byte(second)
	for i := range len(swapped) - 1 {
		if swapped[i] != swapped[i+1] && swapped[i] != '-' && swapped[i+1] != '-' {
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			break
		}
	}
	wantExit(t, b.RunWith("", string(swapped), "unlock", "--recovery"), 3, "mistyped", "eight groups of five")
	wantExit(t, b.Run("unlock", "--recovery"), 3, "Not a valid recovery code")
	for _, printed := range []string{second, string(swapped), first} {
		if strings.Contains(string(b.Printed()), printed[:5]) {
			t.Error("a code was printed")
		}
	}
}

// TestVaultRecover: the passphrase is forgotten, the code is not.
func TestVaultRecover(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	code := b.newCode(Passphrase)
	b.Kill()
	b.Serve()
	r, _ := b.runSecrets(false, passAndNew(Passphrase, another), "vault", "recover")
	wantExit(t, r, 3, "Not a valid recovery code") // a passphrase is none
	r, _ = b.runSecrets(false, passAndNew(vault.NewRecoveryCode(), another), "vault", "recover")
	wantExit(t, r, 3, "The proof does not verify")
	r, next := b.runSecrets(true, passAndNew(code, another), "vault", "recover")
	wantExit(t, r, 0, "The new passphrase is valid.", "The new recovery code is valid")
	wantExit(t, b.RunWith("", another, "secret", "list"), 0, "demo")
	b.RunPlain("lock")
	if b.opens(Passphrase) || b.opens(code) || !b.opens(another) || !b.opens(next) {
		t.Error("what opens the vault is not what was set")
	}
	// Where the new code cannot be shown, the used one stays.
	r, _ = b.runSecrets(false, passAndNew(next, Passphrase), "vault", "recover", "--json")
	wantExit(t, r, 0, `"recovery_shown":false`)
	b.RunPlain("lock")
	if !b.opens(next) || !b.opens(Passphrase) || b.opens(another) {
		t.Error("after the second recovery")
	}
}

// TestRecoveryCodeThatCannotBeShown: a code that nobody got does not replace one
// that somebody has.
func TestRecoveryCodeThatCannotBeShown(t *testing.T) {
	b := New(t)
	b.Serve()
	b.Unlock()
	code := b.newCode(Passphrase)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	c := b.secretCommand(pass(Passphrase), "vault", "recovery-code", "--recovery-fd", "4")
	c.ExtraFiles = append(c.ExtraFiles, full)
	defer closeFiles(c)
	wantExit(t, b.finish(c), 1, "could not be shown", "the old one stays valid")
	b.Must("lock")
	if !b.opens(code) {
		t.Error("the code that the person has is void")
	}
}
