package yetttest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// seedOf is a Touch ID key without a Mac.
func seedOf(b byte) []byte { return bytes.Repeat([]byte{b}, approval.SeedSize) }

// byFinger is the proof by a Touch ID key over a message.
func byFinger(t testing.TB, seed, message []byte, nonce string) *wire.Proof {
	t.Helper()
	k, signature, err := approval.SignTouchID(seed, message)
	must(t, err)
	return &wire.Proof{Nonce: nonce, TouchID: &wire.TouchIDSignature{KeyID: k.ID, Signature: signature}}
}

func touchIDAdd(t testing.TB, seed []byte, name, nonce string) []byte {
	t.Helper()
	k, signature, err := approval.SignTouchID(seed, approval.EnrolTouchIDMessage(name, nonce))
	must(t, err)
	return asJSON(t, wire.TouchIDAdd{Name: name, PublicKey: k.Ed25519(), Signature: signature})
}

func (p *prover) mustAddTouchID(seed []byte, name string) {
	p.b.T.Helper()
	nonce := p.challenge().Nonce
	raw := touchIDAdd(p.b.T, seed, name, nonce)
	if fail := p.ask(wire.MethodTouchIDAdd, raw, byPassphrase(wire.MethodTouchIDAdd, raw, nonce), nil); fail != nil {
		p.b.T.Fatal(fail)
	}
}

// TestAttackTouchIDSignatures: a signature that is not of this key and over
// exactly this decision is refused, and the card waits on.
func TestAttackTouchIDSignatures(t *testing.T) {
	up := StartUpstream(t, canary)
	b := startWithConsole(t, up.Access(), "demo", canary)
	p := b.prover()
	mac, other := seedOf(1), seedOf(2)
	p.mustAddTouchID(mac, "mac")
	passkey := p.mustEnrol("laptop")
	c, second := b.Open(), b.Open()
	c.OpenSession("http:demo.read")
	second.OpenSession("http:demo.write")
	cards := b.waitCards(2)
	card := cards[0]
	once := wire.Approve{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest, Choice: approval.ChoiceOnce}
	until := once
	until.Choice, until.Until = approval.ChoiceUntil, time.Now().Add(time.Hour).UTC()
	later := until
	later.Until = later.Until.Add(time.Minute)
	another := wire.Approve{ApprovalID: cards[1].ApprovalID, CardDigest: cards[1].CardDigest, Choice: approval.ChoiceOnce}
	message := func(r wire.Approve, nonce string) []byte {
		return approval.DecisionMessage(r.CardDigest, r.Choice, r.Until, nonce)
	}
	refused := func(what string, r wire.Approve, proof *wire.Proof) {
		t.Helper()
		if fail := p.ask(wire.MethodApprovalApprove, asJSON(t, r), proof, nil); fail == nil || fail.Code != wire.CodeProofInvalid {
			t.Errorf("%s: %v", what, fail)
		}
	}
	for what, swap := range map[string][2]wire.Approve{"another choice": {once, until}, "a later end": {until, later}, "another card": {once, another}, "no end": {until, once}} {
		nonce := p.challenge().Nonce
		refused(what, swap[1], byFinger(t, mac, message(swap[0], nonce), nonce))
	}
	nonce := p.challenge().Nonce
	refused("another nonce", once, byFinger(t, mac, message(once, "p_other"), nonce))
	nonce = b.prover().challenge().Nonce
	refused("a nonce of somebody else", once, byFinger(t, mac, message(once, nonce), nonce))
	nonce = p.challenge().Nonce
	refused("a signature for reading", once, byFinger(t, mac, approval.ProofMessage(wire.MethodActivityRead, []byte("{}"), nonce), nonce))
	nonce = p.challenge().Nonce
	refused("a key that nobody added", once, byFinger(t, other, message(once, nonce), nonce))
	nonce = p.challenge().Nonce
	stranger := byFinger(t, other, message(once, nonce), nonce)
	stranger.TouchID.KeyID = approval.TouchIDKey(ed25519.NewKeyFromSeed(mac)[32:]).ID
	refused("another key under this one's id", once, stranger)
	refused("no signature", once, &wire.Proof{Nonce: p.challenge().Nonce, TouchID: &wire.TouchIDSignature{KeyID: stranger.TouchID.KeyID, Signature: []byte{}}})
	nonce = p.challenge().Nonce
	asKey := byFinger(t, mac, message(once, nonce), nonce)
	asKey.TouchID.KeyID = passkey.ID
	refused("a signature under a passkey's id", once, asKey)
	nonce = p.challenge().Nonce
	refused("a Touch ID key as a passkey", once, touchIDAsPasskey(mac, passkey.Origin, message(once, nonce), nonce))
	if left := b.Pending(); len(left) != 2 || len(up.Seen()) != 0 {
		t.Fatalf("%d cards wait, %v arrived", len(left), up.Seen())
	}
	// The same signature counts once, and a key that was taken back no more.
	nonce = p.challenge().Nonce
	given := byFinger(t, mac, message(once, nonce), nonce)
	if fail := p.ask(wire.MethodApprovalApprove, asJSON(t, once), given, nil); fail != nil {
		t.Fatalf("a right signature: %v", fail)
	}
	refused("the signature again", once, given)
	waiting := p.challenge().Nonce
	b.Must("passkey", "remove", "mac")
	refused("a signature that was on its way", another, byFinger(t, mac, message(another, waiting), waiting))
	nonce = p.challenge().Nonce
	refused("a key that was taken back", another, byFinger(t, mac, message(another, nonce), nonce))
	b.Must("audit", "verify", "--rows")
}

// touchIDAsPasskey is a passkey's answer, right in every part, by a Touch ID key:
// what somebody would make who reads its item in the keychain, to prove more.
func touchIDAsPasskey(seed []byte, origin string, message []byte, nonce string) *wire.Proof {
	private := ed25519.NewKeyFromSeed(seed)
	challenge := base64.RawURLEncoding.EncodeToString(approval.Challenge(message))
	client := fmt.Appendf(nil, `{"type":"webauthn.get","challenge":%q,"origin":%q,"crossOrigin":false}`, challenge, origin)
	party, sum := sha256.Sum256([]byte(approval.RelyingParty)), sha256.Sum256(client)
	data := append(party[:], FlagPresent|FlagVerified, 0, 0, 0, 0)
	return &wire.Proof{Nonce: nonce, Assertion: &wire.Assertion{CredentialID: approval.TouchIDKey(private[32:]).ID, ClientData: client,
		AuthenticatorData: data, Signature: ed25519.Sign(private, append(bytes.Clone(data), sum[:]...))}}
}

// TestAttackTouchIDReach: a Touch ID key is added with the passphrase alone, by
// its own signature over this challenge; it opens reading and proves no other act,
// as little as what the keychain slot's share gives.
func TestAttackTouchIDReach(t *testing.T) {
	b := startWithConsole(t, StartUpstream(t, canary).Access())
	p := b.prover()
	mac, mine := seedOf(1), seedOf(2)
	p.mustAddTouchID(mac, "mac")
	passkey := p.mustEnrol("laptop")
	refused := func(what, method string, raw []byte, proof *wire.Proof, code string) {
		t.Helper()
		if fail := p.ask(method, raw, proof, nil); fail == nil || fail.Code != code {
			t.Errorf("%s: %v", what, fail)
		}
	}
	add := func(what string, seed []byte, name, signed string, prove func(raw []byte, nonce string) *wire.Proof, code string) {
		t.Helper()
		nonce := p.challenge().Nonce
		if signed == "" {
			signed = nonce
		}
		raw := touchIDAdd(t, seed, name, signed)
		refused(what, wire.MethodTouchIDAdd, raw, prove(raw, nonce), code)
	}
	passphrase := func(raw []byte, nonce string) *wire.Proof { return byPassphrase(wire.MethodTouchIDAdd, raw, nonce) }
	add("without a proof", mine, "agent", "", func([]byte, string) *wire.Proof { return nil }, wire.CodeProofRequired)
	add("by itself", mine, "agent", "", func(raw []byte, nonce string) *wire.Proof {
		return byFinger(t, mine, approval.ProofMessage(wire.MethodTouchIDAdd, raw, nonce), nonce)
	}, wire.CodeProofRequired)
	add("by one that is there", mine, "agent", "", func(raw []byte, nonce string) *wire.Proof {
		return byFinger(t, mac, approval.ProofMessage(wire.MethodTouchIDAdd, raw, nonce), nonce)
	}, wire.CodeProofRequired)
	add("by a passkey", mine, "agent", "", func(raw []byte, nonce string) *wire.Proof {
		return answerOf(passkey, approval.ProofMessage(wire.MethodTouchIDAdd, raw, nonce), nonce)
	}, wire.CodeProofRequired)
	add("to another challenge", mine, "agent", p.challenge().Nonce, passphrase, wire.CodeProofInvalid)
	add("under a name that is there", mine, "laptop", "", passphrase, wire.CodeBadRequest)
	add("the same key twice", mac, "again", "", passphrase, wire.CodeBadRequest)
	add("without a name", mine, "", "", passphrase, wire.CodeBadRequest)

	for method, request := range map[string]any{
		wire.MethodVaultSetSlot: wire.SlotSet{}, wire.MethodKeychainSet: wire.KeychainSet{Salt: make([]byte, 16), UnlockKey: make([]byte, 32)},
		wire.MethodKeychainRemove: wire.Empty{}, wire.MethodHostKeys: wire.HostKeys{Address: "a.example", Jump: []string{"b"}}, wire.MethodSecretSet: wire.SecretSet{Name: "demo", Value: []byte(canary)},
		wire.MethodPasskeyRemove: wire.PasskeyName{Name: "laptop"}, wire.MethodVaultBackup: wire.VaultBackup{}, wire.MethodApprovalClick: wire.Empty{},
	} {
		nonce, raw := p.challenge().Nonce, asJSON(t, request)
		refused(method+" by the finger", method, raw, byFinger(t, mac, approval.ProofMessage(method, raw, nonce), nonce), wire.CodeProofRequired)
	}
	raw := asJSON(t, wire.KeychainSet{Salt: make([]byte, 16), UnlockKey: make([]byte, 32)})
	nonce := p.challenge().Nonce
	refused("a share by a passkey", wire.MethodKeychainSet, raw, answerOf(passkey, approval.ProofMessage(wire.MethodKeychainSet, raw, nonce), nonce), wire.CodeProofRequired)
	refused("a share without a proof", wire.MethodKeychainSet, raw, nil, wire.CodeProofRequired)
	refused("no share without a proof", wire.MethodKeychainRemove, []byte("{}"), nil, wire.CodeProofRequired)

	share, salt := vault.NewShare()
	unlock, err := vault.ShareUnlockKey(share, salt)
	must(t, err)
	nonce, raw = p.challenge().Nonce, asJSON(t, wire.KeychainSet{Salt: salt, UnlockKey: unlock})
	if fail := p.ask(wire.MethodKeychainSet, raw, byPassphrase(wire.MethodKeychainSet, raw, nonce), nil); fail != nil {
		t.Fatal(fail)
	}
	read := approval.ProofMessage(wire.MethodActivityRead, []byte("{}"), nonce)
	for what, key := range map[string][]byte{"the share": share, "its unlock key": unlock} {
		refused(what+" as a proof", wire.MethodActivityRead, []byte("{}"), &wire.Proof{Nonce: p.challenge().Nonce, MAC: vault.Proof(key, read)}, wire.CodeProofInvalid)
	}
	nonce = p.challenge().Nonce
	if fail := p.ask(wire.MethodActivityRead, []byte("{}"), byFinger(t, mac, approval.ProofMessage(wire.MethodActivityRead, []byte("{}"), nonce), nonce), nil); fail != nil {
		t.Errorf("reading by the finger: %v", fail)
	}
	var l wire.List[wire.Passkey]
	if p.ask(wire.MethodPasskeyList, []byte("{}"), nil, &l); len(l.Items) != 2 || l.Items[0].Kind != wire.KindTouchID || l.Items[1].Kind != "" {
		t.Errorf("there are %+v", l)
	}
	if ids := p.challenge().Passkeys.IDs; len(ids) != 1 || !bytes.Equal(ids[0], passkey.ID) {
		t.Errorf("the browser is to ask for %x", ids)
	}
	var rows wire.List[json.RawMessage]
	if fail := p.ask(wire.MethodActivityList, []byte(`{"from":1,"limit":100}`), nil, &rows); fail != nil || bytes.Contains(asJSON(t, rows), []byte(base64.StdEncoding.EncodeToString(unlock))) {
		t.Errorf("the rows have the unlock key: %v", fail)
	}
}
