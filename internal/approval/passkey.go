package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
)

// RelyingParty is the name that passkeys of Yett are for. Browsers take a
// domain only, and localhost is the one that every page of this machine has:
// pages on other ports may ask for the same passkeys. So an answer counts only
// with the console's own origin, port included, and over the challenge of
// exactly this act.
const RelyingParty = "localhost"

// ErrPasskey is wrapped where the answer of a passkey is not accepted.
var ErrPasskey = errors.New("the passkey's answer does not hold")

// ErrCounter: a passkey counts its signatures, and this count was there
// already. There may be a copy of it.
var ErrCounter = fmt.Errorf("%w: its counter went back, there may be a copy of it", ErrPasskey)

// Bounds of what a browser hands over.
const (
	maxClientData  = 4 << 10
	maxAnswer      = 4 << 10 // authenticator data, signature
	maxAttestation = 64 << 10
)

// Bytes is written as base64url without padding, as WebAuthn has it everywhere.
type Bytes []byte

// MarshalText and UnmarshalText make it so; there is one form of each value.
func (b Bytes) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

func (b *Bytes) UnmarshalText(text []byte) error {
	plain, err := base64.RawURLEncoding.Strict().DecodeString(string(text))
	if err != nil || bytes.ContainsAny(text, "\r\n") {
		return errors.New("not base64url without padding")
	}
	*b = plain
	return nil
}

// Passkey is the public half of a person's passkey. Key is a COSE key.
type Passkey struct {
	ID  Bytes `json:"credential_id"`
	Key Bytes `json:"public_key"`
}

// Assertion is the answer of a passkey to a challenge.
type Assertion struct {
	CredentialID      Bytes `json:"credential_id"`
	ClientData        Bytes `json:"client_data_json"`
	AuthenticatorData Bytes `json:"authenticator_data"`
	Signature         Bytes `json:"signature"`
}

// Registration is what a browser hands over when a passkey is made.
type Registration struct {
	ClientData  Bytes `json:"client_data_json"`
	Attestation Bytes `json:"attestation_object"`
}

// Origin is where the console stands for a browser: the only place whose
// answers count.
func Origin(port int) string { return "http://" + RelyingParty + ":" + strconv.Itoa(port) }

// isOrigin reports whether s is the origin of a console on some port.
func isOrigin(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && port > 0 && port < 1<<16 && s == Origin(port)
}

// Challenge is what a passkey signs for a message: see DecisionMessage,
// DecisionsMessage, ProofMessage and EnrolMessage.
func Challenge(message []byte) []byte {
	sum := sha256.Sum256(message)
	return sum[:]
}

// DecisionsMessage returns the bytes that one proof over several cards covers,
// in the order in which they were shown. Of one card it is DecisionMessage.
//
//	"yett-decisions-v1\n" count "\n" digest-hex "\n" … choice "\n" until "\n" nonce
func DecisionsMessage(digests []string, choice string, until time.Time, nonce string) []byte {
	if len(digests) == 1 {
		return DecisionMessage(digests[0], choice, until, nonce)
	}
	b := fmt.Appendf(nil, "yett-decisions-v1\n%d\n", len(digests))
	for _, d := range digests {
		b = fmt.Appendf(b, "%s\n", field(d))
	}
	end := "-"
	if !until.IsZero() {
		end = until.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Appendf(b, "%s\n%s\n%s", field(choice), end, field(nonce))
}

// EnrolMessage returns the bytes whose challenge a new passkey answers.
func EnrolMessage(name, nonce string) []byte {
	return fmt.Appendf(nil, "yett-enrol-v1\n%s\n%s", field(name), field(nonce))
}

// Verify checks the answer of a passkey to the challenge of a message: made on
// the console's page of this origin, by this key, with the person verified by
// the authenticator. It returns the authenticator's count of signatures.
func (k Passkey) Verify(message []byte, origin string, a Assertion) (count uint32, err error) {
	if len(a.ClientData) > maxClientData || len(a.AuthenticatorData) > maxAnswer || len(a.Signature) > maxAnswer {
		return 0, fmt.Errorf("%w: it is longer than allowed", ErrPasskey)
	}
	if !bytes.Equal(k.ID, a.CredentialID) {
		return 0, fmt.Errorf("%w: it is of another passkey", ErrPasskey)
	}
	challenge := base64.RawURLEncoding.EncodeToString(Challenge(message))
	if err := checkClientData(a.ClientData, protocol.AssertCeremony, challenge, origin); err != nil {
		return 0, err
	}
	response := protocol.CredentialAssertionResponse{PublicKeyCredential: credential(a.CredentialID)}
	response.AssertionResponse.ClientDataJSON = protocol.URLEncodedBase64(a.ClientData)
	response.AssertionResponse.AuthenticatorData = protocol.URLEncodedBase64(a.AuthenticatorData)
	response.AssertionResponse.Signature = protocol.URLEncodedBase64(a.Signature)
	parsed, err := response.Parse()
	if err == nil {
		err = parsed.Verify(challenge, RelyingParty, "", []string{origin}, nil, nil,
			protocol.TopOriginExplicitVerificationMode, false, true, true, k.Key, protocol.SignaturePolicy{})
	}
	if err != nil {
		return 0, refused(err)
	}
	return parsed.Response.AuthenticatorData.Counter, nil
}

// Counted judges a count of signatures against the last one that was seen.
// Passkeys that do not count say 0 for ever.
func Counted(last, now uint32) error {
	if (last != 0 || now != 0) && now <= last {
		return ErrCounter
	}
	return nil
}

// algorithms that a passkey may have: ES256, EdDSA, RS256.
var algorithms = []protocol.CredentialParameter{
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgES256},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgEdDSA},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgRS256},
}

// NewPasskey checks what a browser handed over for the challenge of an
// EnrolMessage, and returns the passkey. What the authenticator says of its
// maker is not asked for and, where it comes, not trusted.
func NewPasskey(message []byte, origin string, r Registration) (k Passkey, count uint32, err error) {
	if len(r.ClientData) > maxClientData || len(r.Attestation) > maxAttestation {
		return k, 0, fmt.Errorf("%w: it is longer than allowed", ErrPasskey)
	}
	challenge := base64.RawURLEncoding.EncodeToString(Challenge(message))
	if err := checkClientData(r.ClientData, protocol.CreateCeremony, challenge, origin); err != nil {
		return k, 0, err
	}
	var response protocol.AuthenticatorAttestationResponse
	response.ClientDataJSON = protocol.URLEncodedBase64(r.ClientData)
	response.AttestationObject = protocol.URLEncodedBase64(r.Attestation)
	parsed, err := response.Parse()
	if err != nil {
		return k, 0, refused(err)
	}
	data := &parsed.AttestationObject.AuthData
	hash := sha256.Sum256(r.ClientData)
	err = parsed.CollectedClientData.Verify(challenge, protocol.CreateCeremony, []string{origin}, nil, nil,
		protocol.TopOriginExplicitVerificationMode, false)
	if err == nil {
		err = parsed.AttestationObject.Verify(RelyingParty, hash[:], true, true, nil, algorithms, protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	}
	if err == nil {
		_, err = webauthncose.ParsePublicKey(data.AttData.CredentialPublicKey)
	}
	if err != nil {
		return k, 0, refused(err)
	}
	return Passkey{ID: data.AttData.CredentialID, Key: data.AttData.CredentialPublicKey}, data.Counter, nil
}

// Fingerprint names a passkey's public key: SHA-256 of its COSE form.
func (k Passkey) Fingerprint() string {
	sum := sha256.Sum256(k.Key)
	return hex.EncodeToString(sum[:])
}

// PEM is the public key as other programs read it.
func (k Passkey) PEM() string { return webauthncose.DisplayPublicKey(k.Key) }

// checkClientData holds what a browser says it asked for against what it
// should have asked for. Browsers write these members first and in this order
// (WebAuthn, limited verification algorithm), so they are compared as they
// stand, before a decoder picks one of two members of a name.
func checkClientData(text []byte, kind protocol.CeremonyType, challenge, origin string) error {
	if !isOrigin(origin) {
		return fmt.Errorf("%w: %q is no console's origin", ErrPasskey, origin)
	}
	for _, m := range []struct{ want, what string }{
		{`{"type":"` + string(kind) + `","challenge":"`, "it is of another kind of act"},
		{challenge + `","origin":"`, "it answers another challenge: of another decision, another card, or an older one"},
		{origin + `"`, "it was made on another page than the console's"},
	} {
		rest, ok := bytes.CutPrefix(text, []byte(m.want))
		if !ok {
			return fmt.Errorf("%w: %s", ErrPasskey, m.what)
		}
		text = rest
	}
	return nil
}

func credential(id []byte) protocol.PublicKeyCredential {
	return protocol.PublicKeyCredential{RawID: protocol.URLEncodedBase64(id),
		Credential: protocol.Credential{ID: base64.RawURLEncoding.EncodeToString(id), Type: string(protocol.PublicKeyCredentialType)}}
}

// refused gives a reason of the verifier in our words.
func refused(err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%w: %w", ErrPasskey, err)
	}
	said := e.DevInfo
	if said == "" {
		said = e.Details
	}
	said, _, _ = strings.Cut(said, "\n")
	said = strings.TrimSuffix(said, ": <nil>")
	return fmt.Errorf("%w: %s", ErrPasskey, Escape(said, 200))
}
