package approval_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
)

var seed = bytes.Repeat([]byte{9}, approval.SeedSize)

// TestTouchIDEveryByteCounts: with any byte of the key or the signature changed,
// or over another message, a signature does not hold.
func TestTouchIDEveryByteCounts(t *testing.T) {
	message := approval.DecisionMessage(digest, approval.ChoiceUntil, until, nonce)
	k, signature, err := approval.SignTouchID(seed, message)
	if err == nil {
		err = k.VerifyTouchID(message, signature)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, k approval.Passkey, message, signature []byte) {
		t.Helper()
		if err := k.VerifyTouchID(message, signature); !errors.Is(err, approval.ErrTouchID) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range signature {
		wrong := bytes.Clone(signature)
		wrong[i] ^= 1
		refused("a byte of the signature", k, message, wrong)
	}
	for i := range k.Key {
		wrong := k
		wrong.Key = bytes.Clone(k.Key)
		wrong.Key[i] ^= 1
		refused("a byte of the key", wrong, message, signature)
	}
	refused("a short signature", k, message, signature[:63])
	refused("no signature", k, message, nil)
	refused("no key", approval.Passkey{}, message, signature)
	refused("a longer key", approval.Passkey{Key: append(bytes.Clone(k.Key), 0)}, message, signature)
	refused("another choice", k, approval.DecisionMessage(digest, approval.ChoiceOnce, until, nonce), signature)
	refused("an enrolment", k, approval.EnrolTouchIDMessage("mac", nonce), signature)
	if bytes.Equal(approval.EnrolTouchIDMessage("mac", nonce), approval.EnrolMessage("mac", nonce)) {
		t.Error("one message adds a passkey and a Touch ID key")
	}
	if _, _, err := approval.SignTouchID(seed[:31], message); err == nil {
		t.Error("a short key signs")
	}
}

// TestTouchIDReceipt: a receipt of Touch ID is read back as it is, and with
// anything that matters changed, or with the parts of a passkey's, it is refused.
func TestTouchIDReceipt(t *testing.T) {
	const card = `{"approval_id":"a_1"}`
	d := approval.Decided{ApprovalID: "a_1", Digest: approval.Digest([]byte(card)), Document: card, Choice: approval.ChoiceUntil, Until: until}
	k, signature, err := approval.SignTouchID(seed, approval.DecisionMessage(d.Digest, d.Choice, d.Until, nonce))
	if err != nil {
		t.Fatal(err)
	}
	d.Proven = approval.Proven{By: approval.ByTouchID, Nonce: nonce, Cards: []string{d.Digest}, Name: "mac", Key: k.Key, Signature: signature}
	r, err := approval.NewReceipt(d, until)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if again, err := approval.ParseReceipt(raw); err != nil || again.Fingerprint != k.Fingerprint() || !strings.Contains(r.KeyPEM, "BEGIN PUBLIC KEY") {
		t.Fatalf("%+v %v", again, err)
	}
	for what, change := range map[string][2]string{
		"another card":     {`a_1\"`, `a_2\"`},
		"another choice":   {`"choice":"until"`, `"choice":"once"`},
		"another end":      {`"until":"2026`, `"until":"2027`},
		"another nonce":    {`"nonce":"p_9`, `"nonce":"p_8`},
		"another kind":     {`"by":"touchid"`, `"by":"passkey"`},
		"no kind":          {`"by":"touchid"`, `"by":""`},
		"another PEM":      {`BEGIN PUBLIC`, `BEGIN PUBLiC`},
		"a page":           {`"by":`, `"origin":"http://localhost:1","by":`},
		"a passkey's part": {`"by":`, `"assertion":{"credential_id":"","client_data_json":"","authenticator_data":"","signature":""},"by":`},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Errorf("%s: there is no %s", what, change[0])
		}
		if _, err := approval.ParseReceipt([]byte(changed)); !errors.Is(err, approval.ErrReceipt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.Proven.Cards = []string{strings.Repeat("0", 64)}
	if _, err := approval.NewReceipt(d, until); !errors.Is(err, approval.ErrTouchID) {
		t.Errorf("a signature about another card: %v", err)
	}
}
