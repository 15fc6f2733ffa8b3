package approval_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/yetttest"
)

// FuzzPasskeyAnswer: no other bytes than a passkey's own are its answer, and
// none break the reader.
func FuzzPasskeyAnswer(f *testing.F) {
	a := yetttest.NewAuthenticator(origin)
	message := approval.DecisionMessage(digest, approval.ChoiceOnce, time.Time{}, nonce)
	given := a.Get(message)
	made := a.Create(message)
	f.Add([]byte(given.ClientData), []byte(given.AuthenticatorData), []byte(given.Signature), []byte(made.Attestation))
	f.Fuzz(func(t *testing.T, client, data, signature, attestation []byte) {
		answer := approval.Assertion{CredentialID: a.ID, ClientData: client, AuthenticatorData: data, Signature: signature}
		own := bytes.Equal(client, given.ClientData) && bytes.Equal(data, given.AuthenticatorData) && bytes.Equal(signature, given.Signature)
		if _, err := a.Passkey().Verify(message, origin, answer); (err == nil) != own {
			t.Errorf("%q %x %x: %v", client, data, signature, err)
		}
		approval.NewPasskey(message, origin, approval.Registration{ClientData: made.ClientData, Attestation: attestation})
	})
}

// FuzzParseReceipt: what is read is written and read again as it was.
func FuzzParseReceipt(f *testing.F) {
	f.Add(receiptOf(f, yetttest.NewAuthenticator(origin)))
	f.Add([]byte(`{"format":1,"assertion":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := approval.ParseReceipt(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := approval.ParseReceipt(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
