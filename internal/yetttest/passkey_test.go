package yetttest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// TestPasskeyReceipt: a passkey approves, the agent's action is done, the row
// has what anyone needs to check it, yett audit verify checks it again, and a
// receipt is checked by Yett without any state and by a verifier of WebAuthn that
// is not ours.
func TestPasskeyReceipt(t *testing.T) {
	up := StartUpstream(t, canary)
	b := startWithConsole(t, up.Access(), "demo", canary)
	p := b.prover()
	a := p.mustEnrol("laptop")
	a.Count = 7 // it counts its signatures
	c, other := b.Open(), b.Open()
	c.OpenSession("http:demo.read")
	other.OpenSession("http:demo.read", "http:demo.write")
	cards := b.waitCards(2)
	until := time.Now().Add(time.Hour).UTC()
	all, fail := p.approves(a, approval.ChoiceUntil, until, cards...)
	if fail != nil || len(all.Cards) != 2 || all.Cards[0].Error != nil || all.Cards[1].Error != nil {
		t.Fatalf("two cards by one answer: %v %+v", fail, all)
	}
	c.Must(wire.MethodSessionWait, c.Next(map[string]any{"wait_ms": 30_000}), &c.Session)
	if op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"}); op.State != "completed" {
		t.Fatalf("the action: %+v", op)
	}
	var rows []int64
	for _, r := range b.Activity() {
		if r.Kind != "decision" {
			continue
		}
		rows = append(rows, r.N)
		var v struct{ Proof approval.Proven }
		must(t, json.Unmarshal(r.Verified, &v))
		if v.Proof.By != approval.ByPasskey || v.Proof.Name != "laptop" || len(v.Proof.Cards) != 2 || v.Proof.Assertion == nil {
			t.Errorf("row %d tells of the proof: %+v", r.N, v.Proof)
		}
	}
	if len(rows) != 2 {
		t.Fatalf("decisions in rows %v", rows)
	}
	if r := b.Must("audit", "verify", "--rows"); !strings.Contains(r.Stdout, "2 acts by signature checked again") {
		t.Errorf("audit verify: %s", r.Stdout)
	}
	file := filepath.Join(t.TempDir(), "receipt.json")
	b.Must("receipt", fmt.Sprint(rows[1]), "--out", file)
	b.checkReceipt(t, file, a)
}

// checkReceipt lets both verifiers check a receipt, and neither take a changed
// one, or that of another person.
func (b *Broker) checkReceipt(t *testing.T, file string, a *Authenticator) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	files := []string{file}
	for i, change := range [][2]string{{`"choice": "until"`, `"choice": "once"`}, {`"nonce": "p_`, `"nonce": "q_`}, {`"until": "20`, `"until": "21`},
		{a.Origin, a.Origin + "0"}, {`http:demo.`, `http:dome.`}} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Fatalf("%q is not in the receipt:\n%s", change[0], text)
		}
		files = append(files, filepath.Join(t.TempDir(), fmt.Sprint(i)))
		must(t, os.WriteFile(files[i+1], []byte(changed), 0o600))
	}
	ours := func(passkey string, files ...string) (said []string) {
		for _, f := range files {
			c := exec.Command(Bin("yett"), "receipt", "verify", f, "--passkey", passkey)
			c.Env = []string{"HOME=/nonexistent"}
			out, err := c.CombinedOutput()
			if err == nil {
				out = []byte("ok")
			}
			said = append(said, string(out))
		}
		return said
	}
	if got := ours("", files[0]); !strings.Contains(got[0], "--passkey is empty") {
		t.Errorf("an empty passkey is said to be %q", got)
	}
	theirs := func(passkey string, files ...string) (said []string) {
		c := exec.Command("node", append([]string{filepath.Join(nodeDir(), "receipt.mjs"), passkey}, files...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("node: %v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			said = append(said, strings.TrimSpace(line))
		}
		return said
	}
	for name, check := range map[string]func(string, ...string) []string{"yett receipt verify": ours, "@simplewebauthn/server": theirs} {
		said := check(a.Passkey().Fingerprint(), files...)
		if len(said) != len(files) || said[0] != "ok" {
			t.Fatalf("%s about the receipt: %q", name, said)
		}
		for i := 1; i < len(files); i++ {
			if said[i] == "ok" {
				t.Errorf("%s takes a receipt with change %d", name, i)
			}
		}
		if said := check(strings.Repeat("0", 64), file); said[0] == "ok" {
			t.Errorf("%s takes the receipt for another person's", name)
		}
	}
}

// waitCards returns the waiting cards, once there are n.
func (b *Broker) waitCards(n int) []Card {
	b.T.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if cards := b.Pending(); len(cards) >= n {
			return cards
		}
	}
	b.T.Fatalf("%d cards did not come", n)
	return nil
}

// TestAttackPasskeyAnswers: an answer that is not of this passkey, on the
// console's page, with the person verified, to exactly this decision, is
// refused, and the card waits on.
func TestAttackPasskeyAnswers(t *testing.T) {
	up := StartUpstream(t, canary)
	b := startWithConsole(t, up.Access(), "demo", canary)
	p := b.prover()
	a := p.mustEnrol("laptop")
	c, second := b.Open(), b.Open()
	c.OpenSession("http:demo.read")
	second.OpenSession("http:demo.write")
	cards := b.waitCards(2)
	card, other := cards[0], cards[1]
	once := wire.Approve{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest, Choice: approval.ChoiceOnce}
	message := func(r wire.Approve, nonce string) []byte {
		return approval.DecisionMessage(r.CardDigest, r.Choice, r.Until, nonce)
	}
	refused := func(what string, r wire.Approve, proof *wire.Proof, code string) {
		t.Helper()
		fail := p.ask(wire.MethodApprovalApprove, asJSON(t, r), proof, nil)
		if fail == nil || fail.Code != code {
			t.Errorf("%s: %v", what, fail)
		}
	}
	// What the browser or the authenticator says is wrong.
	for what, spoil := range map[string]func(*Authenticator){
		"another port's page":   func(a *Authenticator) { a.Origin = "http://localhost:1" },
		"another page":          func(a *Authenticator) { a.Origin = "http://evil.example" },
		"the page by address":   func(a *Authenticator) { a.Origin = strings.Replace(a.Origin, "localhost", "127.0.0.1", 1) },
		"another relying party": func(a *Authenticator) { a.RPID = "evil.example" },
		"nobody verified":       func(a *Authenticator) { a.Flags = FlagPresent },
		"inside another page":   func(a *Authenticator) { a.Cross = "true" },
	} {
		wrong := *a
		spoil(&wrong)
		nonce := p.challenge().Nonce
		refused(what, once, answerOf(&wrong, message(once, nonce), nonce), wire.CodeProofInvalid)
	}
	// The answer is right, and about something else.
	nonce := p.challenge().Nonce
	until := wire.Approve{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest, Choice: approval.ChoiceUntil, Until: time.Now().Add(time.Hour).UTC()}
	refused("another choice", until, answerOf(a, message(once, nonce), nonce), wire.CodeProofInvalid)
	nonce = p.challenge().Nonce
	swapped := wire.Approve{ApprovalID: other.ApprovalID, CardDigest: other.CardDigest, Choice: approval.ChoiceOnce}
	refused("another card", swapped, answerOf(a, message(once, nonce), nonce), wire.CodeProofInvalid)
	nonce = p.challenge().Nonce
	swapped.CardDigest = card.CardDigest
	refused("another card under this digest", swapped, answerOf(a, message(swapped, nonce), nonce), wire.CodeProofInvalid)
	nonce = p.challenge().Nonce
	refused("an answer to reading", once, answerOf(a, approval.ProofMessage(wire.MethodActivityRead, []byte("{}"), nonce), nonce), wire.CodeProofInvalid)
	nonce = b.prover().challenge().Nonce
	refused("a nonce of somebody else", once, answerOf(a, message(once, nonce), nonce), wire.CodeProofInvalid)
	// The answer is of nobody, or not there.
	nonce = p.challenge().Nonce
	refused("a passkey that nobody added", once, answerOf(NewAuthenticator(a.Origin), message(once, nonce), nonce), wire.CodeProofInvalid)
	stranger := NewAuthenticator(a.Origin)
	stranger.ID = a.ID
	nonce = p.challenge().Nonce
	refused("another key under the passkey's id", once, answerOf(stranger, message(once, nonce), nonce), wire.CodeProofInvalid)
	refused("an empty answer", once, &wire.Proof{Nonce: p.challenge().Nonce, Assertion: &wire.Assertion{CredentialID: a.ID, ClientData: []byte{}, AuthenticatorData: []byte{}, Signature: []byte{}}}, wire.CodeProofInvalid)
	refused("no answer", once, &wire.Proof{Nonce: p.challenge().Nonce}, wire.CodeProofInvalid)
	refused("a click of a command", once, &wire.Proof{Nonce: p.challenge().Nonce, Click: true}, wire.CodeProofRequired)
	if left := b.Pending(); len(left) != 2 || len(up.Seen()) != 0 {
		t.Fatalf("%d cards wait, %v arrived", len(left), up.Seen())
	}
	// The same answer counts once.
	nonce = p.challenge().Nonce
	given := answerOf(a, message(once, nonce), nonce)
	if fail := p.ask(wire.MethodApprovalApprove, asJSON(t, once), given, nil); fail != nil {
		t.Fatalf("a right answer: %v", fail)
	}
	refused("the answer again", once, given, wire.CodeProofInvalid)
}

// TestAttackPasskeyEnrolment: a passkey is added with the passphrase alone, by
// an answer of the console's page to this very challenge.
func TestAttackPasskeyEnrolment(t *testing.T) {
	b := startWithConsole(t, StartUpstream(t, canary).Access())
	p := b.prover()
	a := p.mustEnrol("laptop")
	mine := NewAuthenticator(a.Origin)
	nonce := p.challenge().Nonce
	raw := addOf(t, mine, "agent", nonce)
	refused := func(what string, proof *wire.Proof, raw []byte, code string) {
		t.Helper()
		if fail := p.ask(wire.MethodPasskeyAdd, raw, proof, nil); fail == nil || fail.Code != code {
			t.Errorf("%s: %v", what, fail)
		}
	}
	refused("no proof", nil, raw, wire.CodeProofRequired)
	refused("by the new passkey itself", answerOf(mine, approval.ProofMessage(wire.MethodPasskeyAdd, raw, nonce), nonce), raw, wire.CodeProofRequired)
	refused("by one that is there", answerOf(a, approval.ProofMessage(wire.MethodPasskeyAdd, raw, nonce), nonce), raw, wire.CodeProofRequired)
	refused("with a code that is wrong", &wire.Proof{Nonce: nonce, MAC: make([]byte, 32)}, raw, wire.CodeProofInvalid)
	for what, spoil := range map[string]func(*Authenticator){
		"on another port's page": func(a *Authenticator) { a.Origin = "http://localhost:1" },
		"nobody verified":        func(a *Authenticator) { a.Flags = FlagPresent },
		"another relying party":  func(a *Authenticator) { a.RPID = "evil.example" },
		"an answer":              func(a *Authenticator) { a.Kind = "webauthn.get" },
	} {
		wrong := *mine
		spoil(&wrong)
		nonce := p.challenge().Nonce
		raw := addOf(t, &wrong, "agent", nonce)
		refused(what, byPassphrase(wire.MethodPasskeyAdd, raw, nonce), raw, wire.CodeProofInvalid)
	}
	old := p.challenge().Nonce
	nonce = p.challenge().Nonce
	raw = addOf(t, mine, "agent", old)
	refused("to an older challenge", byPassphrase(wire.MethodPasskeyAdd, raw, nonce), raw, wire.CodeProofInvalid)
	nonce = p.challenge().Nonce
	raw = addOf(t, mine, "laptop", nonce)
	refused("under a name that is there", byPassphrase(wire.MethodPasskeyAdd, raw, nonce), raw, wire.CodeBadRequest)
	if fail := p.enrol(a, "again"); fail == nil || fail.Code != wire.CodeBadRequest {
		t.Errorf("the same passkey twice: %v", fail)
	}
	set := asJSON(t, wire.SlotSet{})
	if fail := p.byPasskey(a, wire.MethodVaultSetSlot, json.RawMessage(set), nil); fail == nil || fail.Code != wire.CodeProofRequired {
		t.Errorf("another passphrase by a passkey: %v", fail)
	}
	var l wire.List[wire.Passkey]
	if c := b.prover().challenge(); len(c.Passkeys.IDs) != 0 {
		t.Errorf("without a proof it is told which passkeys there are: %+v", c.Passkeys)
	}
	if fail := p.byPasskey(a, wire.MethodActivityRead, wire.Empty{}, nil); fail != nil {
		t.Fatalf("reading by a passkey: %v", fail)
	}
	if c := p.challenge(); len(c.Passkeys.IDs) != 1 {
		t.Errorf("the passkeys after a proof: %+v", c.Passkeys)
	}
	if p.ask(wire.MethodPasskeyList, []byte("{}"), nil, &l); len(l.Items) != 1 || l.Items[0].Name != "laptop" || l.Items[0].Fingerprint != a.Passkey().Fingerprint() {
		t.Errorf("there are %+v", l)
	}
}

// TestPasskeyRemoved: a passkey that was taken back proves nothing, what proofs
// had opened is closed, and the passphrase stays. Removing it takes a proof.
func TestPasskeyRemoved(t *testing.T) {
	b := startWithConsole(t, StartUpstream(t, canary).Access())
	p, agent := b.prover(), b.prover()
	a := p.mustEnrol("laptop")
	if fail := agent.ask(wire.MethodPasskeyRemove, []byte(`{"name":"laptop"}`), nil, nil); fail == nil || fail.Code != wire.CodeProofRequired {
		t.Errorf("removed without a proof: %v", fail)
	}
	if fail := p.byPasskey(a, wire.MethodActivityRead, wire.Empty{}, nil); fail != nil {
		t.Fatal(fail)
	}
	nonce := p.challenge().Nonce // one that waits for an answer
	b.Must("passkey", "remove", "laptop")
	if fail := p.ask(wire.MethodActivityRead, []byte("{}"), answerOf(a, approval.ProofMessage(wire.MethodActivityRead, []byte("{}"), nonce), nonce), nil); fail == nil || fail.Code != wire.CodeProofInvalid {
		t.Errorf("an answer that was on its way: %v", fail)
	}
	if fail := p.byPasskey(a, wire.MethodActivityRead, wire.Empty{}, nil); fail == nil || fail.Code != wire.CodeProofInvalid {
		t.Errorf("a new answer: %v", fail)
	}
	var l wire.List[Row]
	if p.ask(wire.MethodActivityList, []byte(`{"from":1,"limit":10}`), nil, &l); len(l.Items) != 0 {
		t.Errorf("reading stays open: %+v", l)
	}
	nonce = p.challenge().Nonce
	if fail := p.ask(wire.MethodPasskeyRemove, []byte(`{"name":"laptop"}`), byPassphrase(wire.MethodPasskeyRemove, []byte(`{"name":"laptop"}`), nonce), nil); fail == nil || fail.Code != wire.CodeBadRequest {
		t.Errorf("removed twice: %v", fail)
	}
}

// TestPasskeyIsNotHeldUp: whoever guesses passphrases holds up passphrases, and
// no passkey; wrong answers of passkeys hold up nobody.
func TestPasskeyIsNotHeldUp(t *testing.T) {
	b := startWithConsole(t, StartUpstream(t, canary).Access())
	p, guesser := b.prover(), b.prover()
	a := p.mustEnrol("laptop")
	wrong := *a
	wrong.Origin = "http://localhost:1"
	for range 8 {
		if fail := p.byPasskey(&wrong, wire.MethodActivityRead, wire.Empty{}, nil); fail == nil {
			t.Fatal("a wrong answer was accepted")
		}
	}
	guess := func() *wire.Error {
		return guesser.ask(wire.MethodActivityRead, []byte("{}"), &wire.Proof{Nonce: guesser.challenge().Nonce, MAC: make([]byte, 32)}, nil)
	}
	begun := time.Now()
	for range 4 { // the fourth waits for a second; after the answers of passkeys it would be thirty
		guess()
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("wrong answers of passkeys held up passphrases: %v", took)
	}
	waiting := make(chan time.Duration, 1)
	go func() {
		begun := time.Now()
		guess()
		waiting <- time.Since(begun)
	}()
	if fail := p.byPasskey(a, wire.MethodActivityRead, wire.Empty{}, nil); fail != nil {
		t.Errorf("a right answer beside guesses: %v", fail)
	}
	select {
	case took := <-waiting:
		t.Errorf("the answer of the passkey came after a guess that took %v", took)
	default:
	}
	if took := <-waiting; took < time.Second {
		t.Errorf("the fifth guess was not held up: %v", took)
	}
}

// TestPasskeyCounterWentBack: an authenticator whose count was there already may
// be a copy; it is refused and recorded.
func TestPasskeyCounterWentBack(t *testing.T) {
	b := startWithConsole(t, StartUpstream(t, canary).Access())
	p := b.prover()
	a := p.mustEnrol("key")
	a.Count = 10
	for range 2 {
		if fail := p.byPasskey(a, wire.MethodActivityRead, wire.Empty{}, nil); fail != nil {
			t.Fatal(fail)
		}
	}
	b.Restart()
	p = b.prover()
	clone := *a
	clone.Count = a.Count - 1 // the next one is a count that was there
	if fail := p.byPasskey(&clone, wire.MethodActivityRead, wire.Empty{}, nil); fail == nil || fail.Code != wire.CodeProofInvalid {
		t.Errorf("a copy was accepted: %v", fail)
	}
	if fail := p.byPasskey(a, wire.MethodActivityRead, wire.Empty{}, nil); fail != nil {
		t.Errorf("the passkey itself: %v", fail)
	}
	noticed := 0
	for _, r := range b.Activity() {
		if r.Kind == "passkey.counter_went_back" {
			noticed++
		}
	}
	if noticed != 1 {
		t.Errorf("%d rows tell of the copy", noticed)
	}
}

// TestPasskeyProvesWithoutValues: a passkey's answer stores a value for the
// credential that it is about, and for no other, in no other way, and once. Its
// row can be checked again, and neither it nor the challenge says anything of the
// value, not even a hash that could be guessed against.
func TestPasskeyProvesWithoutValues(t *testing.T) {
	b := startWithConsole(t, `
[credential.demo]
kind = "bearer"
origin = "https://demo.example"

[credential.other]
kind = "bearer"
origin = "https://other.example"
`)
	p := b.prover()
	a := p.mustEnrol("laptop")
	var declared []wire.Secret
	b.Must("secret", "list", "--json").JSON(t, &declared)
	about := approval.Value{Method: wire.MethodSecretSet, Name: "demo", Kind: declared[0].Kind, Place: declared[0].Place}
	const guessable = "guessable"
	store := func(method, name string, v approval.Value) *wire.Error {
		t.Helper()
		nonce := p.challenge().Nonce
		return p.ask(method, asJSON(t, wire.SecretSet{Name: name, Value: []byte(guessable)}), answerOf(a, v.Message(nonce), nonce), nil)
	}
	elsewhere, otherKind, replacing := about, about, about
	elsewhere.Place, otherKind.Kind, replacing.Method = "https://evil.example", "basic", wire.MethodSecretRotate
	for what, fail := range map[string]*wire.Error{
		"another credential":           store(wire.MethodSecretSet, "other", about),
		"another place":                store(wire.MethodSecretSet, "demo", elsewhere),
		"another kind":                 store(wire.MethodSecretSet, "demo", otherKind),
		"replacing instead of setting": store(wire.MethodSecretSet, "demo", replacing),
		"one that is not declared":     store(wire.MethodSecretSet, "none", approval.Value{Method: wire.MethodSecretSet, Name: "none"}),
		"the bytes of the request":     p.byPasskey(a, wire.MethodSecretSet, wire.SecretSet{Name: "demo", Value: []byte(guessable)}, nil),
		"the same for any other act":   p.ask(wire.MethodSecretRemove, asJSON(t, wire.SecretName{Name: "demo"}), answerOf(a, about.Message("p_x"), "p_x"), nil),
	} {
		if fail == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	if fail := store(wire.MethodSecretSet, "demo", about); fail != nil {
		t.Fatal(fail)
	}
	told := 0
	for _, r := range b.Activity() {
		s := string(r.Request) + string(r.Outcome) + string(r.Verified)
		for _, hash := range []string{guessable, fmt.Sprintf("%x", sha256.Sum256([]byte(guessable))), base64.StdEncoding.EncodeToString([]byte(guessable)), "request_sha256"} {
			if strings.Contains(s, hash) {
				t.Errorf("row %d tells of the value: %s", r.N, s)
			}
		}
		if r.Kind == "proof.passkey" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d rows tell of the passkey", told)
	}
	if r := b.Must("audit", "verify", "--rows"); !strings.Contains(r.Stdout, "1 act by") {
		t.Errorf("audit verify: %s", r.Stdout)
	}
}

// TestPasskeysAreOffWithoutConsole: no answer counts where no page can ask.
func TestPasskeysAreOffWithoutConsole(t *testing.T) {
	b := startWithConsole(t, StartUpstream(t, canary).Access())
	a := b.prover().mustEnrol("laptop")
	b.ServeArgs = nil
	b.Restart()
	p := b.prover()
	if c := p.challenge(); c.Passkeys != nil {
		t.Errorf("a test home offers %+v", c.Passkeys)
	}
	if fail := p.byPasskey(a, wire.MethodActivityRead, wire.Empty{}, nil); fail == nil || fail.Code != wire.CodeProofInvalid {
		t.Errorf("an answer was accepted: %v", fail)
	}
	if fail := p.enrol(NewAuthenticator(a.Origin), "more"); fail == nil || fail.Code != wire.CodeBadRequest {
		t.Errorf("a passkey was added: %v", fail)
	}
}
