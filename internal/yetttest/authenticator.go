package yetttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/yett-broker/yett/internal/approval"
)

// Authenticator is a passkey and the browser in front of it, without either:
// it signs whatever a test says. Its zero fields are those of a browser and an
// authenticator that do everything right.
type Authenticator struct {
	ID    []byte
	Count uint32 // of signatures; 0 for one that does not count

	Origin   string // of the page
	RPID     string // localhost
	Flags    byte   // user present and verified
	Kind     string // of the ceremony
	Cross    string // true: in a frame of another page
	key      *ecdsa.PrivateKey
	Trailing string // more of the client data
}

// Flags of authenticator data.
const (
	FlagPresent  = 1
	FlagVerified = 4
	flagAttested = 64
)

// NewAuthenticator makes a passkey on the page of a console.
func NewAuthenticator(origin string) *Authenticator {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	id := make([]byte, 32)
	rand.Read(id)
	return &Authenticator{ID: id, Origin: origin, RPID: approval.RelyingParty, Flags: FlagPresent | FlagVerified, Cross: "false", key: key}
}

// COSE is the public key.
func (a *Authenticator) COSE() []byte {
	point, err := a.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		panic(err)
	}
	mode, err := cbor.CTAP2EncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	out, err := mode.Marshal(map[int]any{1: 2, 3: -7, -1: 1, -2: point[1:33], -3: point[33:]})
	if err != nil {
		panic(err)
	}
	return out
}

// Passkey is the public half.
func (a *Authenticator) Passkey() approval.Passkey {
	return approval.Passkey{ID: a.ID, Key: a.COSE()}
}

func (a *Authenticator) clientData(kind string, message []byte) []byte {
	if a.Kind != "" {
		kind = a.Kind
	}
	challenge := base64.RawURLEncoding.EncodeToString(approval.Challenge(message))
	origin, _ := json.Marshal(a.Origin)
	return fmt.Appendf(nil, `{"type":%q,"challenge":%q,"origin":%s,"crossOrigin":%s%s}`, kind, challenge, origin, a.Cross, a.Trailing)
}

func (a *Authenticator) data(more byte) []byte {
	hash := sha256.Sum256([]byte(a.RPID))
	if a.Count > 0 {
		a.Count++
	}
	return binary.BigEndian.AppendUint32(append(hash[:], a.Flags|more), a.Count)
}

// Get answers the challenge of a message.
func (a *Authenticator) Get(message []byte) approval.Assertion {
	out := approval.Assertion{CredentialID: a.ID, ClientData: a.clientData("webauthn.get", message), AuthenticatorData: a.data(0)}
	out.Signature = a.sign(out)
	return out
}

func (a *Authenticator) sign(out approval.Assertion) []byte {
	client := sha256.Sum256(out.ClientData)
	sum := sha256.Sum256(append(append([]byte{}, out.AuthenticatorData...), client[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, sum[:])
	if err != nil {
		panic(err)
	}
	return signature
}

// Create answers the challenge of an enrolment.
func (a *Authenticator) Create(message []byte) approval.Registration {
	data := append(a.data(flagAttested), make([]byte, 16)...)
	data = append(binary.BigEndian.AppendUint16(data, uint16(len(a.ID))), a.ID...)
	data = append(data, a.COSE()...)
	object, err := cbor.Marshal(map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": data})
	if err != nil {
		panic(err)
	}
	return approval.Registration{ClientData: a.clientData("webauthn.create", message), Attestation: object}
}
