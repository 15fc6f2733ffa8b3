package yetttest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// prover is somebody on a connection to the broker, with whatever proofs a test
// gives.
type prover struct {
	b    *Broker
	conn *client.Conn
}

func (b *Broker) prover() *prover {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	must(b.T, err)
	b.T.Cleanup(func() { conn.Close() })
	return &prover{b, conn}
}

// ask makes a request with a proof, if any, and returns the refusal.
func (p *prover) ask(method string, raw []byte, proof *wire.Proof, result any) *wire.Error {
	p.b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err := p.conn.Call(ctx, method, wire.Managed{Request: raw, Proof: proof}, result)
	var fail *wire.Error
	if err != nil && !errors.As(err, &fail) {
		p.b.T.Fatalf("%s: %v", method, err)
	}
	return fail
}

func (p *prover) challenge() (c wire.Challenge) {
	p.b.T.Helper()
	if fail := p.ask(wire.MethodVaultChallenge, []byte("{}"), nil, &c); fail != nil {
		p.b.T.Fatal(fail)
	}
	return c
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return raw
}

// byPassphrase proves the bytes of a request.
func byPassphrase(method string, raw []byte, nonce string) *wire.Proof {
	return &wire.Proof{Nonce: nonce, MAC: vault.Proof(template.keys.Approval, approval.ProofMessage(method, raw, nonce))}
}

// answerOf is the proof by a passkey's answer to the challenge of a message.
func answerOf(a *Authenticator, message []byte, nonce string) *wire.Proof {
	g := a.Get(message)
	return &wire.Proof{Nonce: nonce, Assertion: &wire.Assertion{CredentialID: g.CredentialID, ClientData: g.ClientData,
		AuthenticatorData: g.AuthenticatorData, Signature: g.Signature}}
}

// byPasskey makes a request with a passkey's proof over its bytes.
func (p *prover) byPasskey(a *Authenticator, method string, request, result any) *wire.Error {
	p.b.T.Helper()
	nonce, raw := p.challenge().Nonce, asJSON(p.b.T, request)
	return p.ask(method, raw, answerOf(a, approval.ProofMessage(method, raw, nonce), nonce), result)
}

// enrol adds a passkey with the passphrase.
func (p *prover) enrol(a *Authenticator, name string) *wire.Error {
	p.b.T.Helper()
	nonce := p.challenge().Nonce
	raw := addOf(p.b.T, a, name, nonce)
	return p.ask(wire.MethodPasskeyAdd, raw, byPassphrase(wire.MethodPasskeyAdd, raw, nonce), nil)
}

func addOf(t testing.TB, a *Authenticator, name, nonce string) []byte {
	made := a.Create(approval.EnrolMessage(name, nonce))
	return asJSON(t, wire.PasskeyAdd{Name: name, ClientData: made.ClientData, Attestation: made.Attestation, Transports: []string{"internal"}})
}

// mustEnrol makes a passkey of the console's page and adds it.
func (p *prover) mustEnrol(name string) *Authenticator {
	p.b.T.Helper()
	a := NewAuthenticator(p.b.consoleOrigin())
	if fail := p.enrol(a, name); fail != nil {
		p.b.T.Fatalf("adding passkey %s: %v", name, fail)
	}
	return a
}

// approves decides cards by one answer of a passkey over all of them.
func (p *prover) approves(a *Authenticator, choice string, until time.Time, cards ...Card) (all wire.ApprovedAll, fail *wire.Error) {
	p.b.T.Helper()
	r := wire.ApproveAll{Choice: choice, Until: until}
	var digests []string
	for _, c := range cards {
		r.Cards = append(r.Cards, wire.CardNamed{ApprovalID: c.ApprovalID, CardDigest: c.CardDigest})
		digests = append(digests, c.CardDigest)
	}
	nonce := p.challenge().Nonce
	fail = p.ask(wire.MethodApproveAll, asJSON(p.b.T, r), answerOf(a, approval.DecisionsMessage(digests, choice, until, nonce), nonce), &all)
	return all, fail
}

// consoleOrigin is where the broker's console is for a browser.
func (b *Broker) consoleOrigin() string {
	b.T.Helper()
	c := b.prover().challenge()
	if c.Passkeys == nil {
		b.T.Fatal("the broker has no console")
	}
	return c.Passkeys.Origin
}

// freePort is one that nobody listens on now.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startWithConsole is Start with a console on a port of its own.
func startWithConsole(t testing.TB, accessFile string, values ...string) *Broker {
	t.Helper()
	b := New(t)
	b.ServeArgs = []string{"--console=" + strconv.Itoa(freePort(t))}
	b.Serve()
	b.Unlock()
	b.Apply(accessFile)
	for i := 0; i+1 < len(values); i += 2 {
		b.SetSecret(values[i], values[i+1])
	}
	return b
}
