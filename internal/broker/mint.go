package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/httpexec"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// mintFailure is why there is no access token: nothing of the action was sent.
type mintFailure struct {
	why, next string
}

// minted lends an access token of the credential to run, for one call.
func (b *Broker) minted(way *sending, open *unlocked, op *operation, cred access.Credential, run func(access []byte) outcome) outcome {
	for {
		c := b.tokens.claim(cred, b.Clock.SinceBoot())
		switch {
		case c.access != nil:
			defer clear(c.access)
			out := run(c.access)
			if r, ok := out.result.(wire.HTTPResult); ok && r.Status == http.StatusUnauthorized {
				// Nothing is repeated; the next action has a fresh one.
				b.tokens.spoil(cred.Name, c.access)
			}
			return out
		case c.failed != nil:
			return notSent(c.failed.why, c.failed.next)
		case c.wait != nil:
			select {
			case <-c.wait:
			case <-way.ctx.Done():
				return stopped(op.session)
			}
			continue
		}
		m := &minting{b: b, way: way, open: open, op: op, cred: cred, claim: c}
		r := m.mint()
		b.tokens.done(m.claim, cred.Name, b.Clock.SinceBoot(), r)
		switch {
		case r.failed != nil:
			return notSent(r.failed.why, r.failed.next)
		case r.minted == nil: // nothing was sent, or what came is not to be used
			return stopped(op.session)
		}
	}
}

// minting is one turn at a token endpoint.
type minting struct {
	b     *Broker
	way   *sending
	open  *unlocked
	op    *operation
	cred  access.Credential
	claim claim
}

// errStored: the exchange happened, and the new refresh token is not durable.
var errStored = errors.New("the new refresh token could not be stored")

// mint makes an exchange, with the value as it is in the vault now. If the
// endpoint refuses the value and another is there by then, that one is tried.
// The stored value is replaced by a new one and never removed: a refusal may be
// a mistake of the endpoint.
func (m *minting) mint() mintResult {
	if u := m.claim.unsaved; u != nil {
		return m.save(u)
	}
	var tried [sha256.Size]byte
	for {
		var r mintResult
		same := false
		m.claim.epoch = m.b.tokens.now() // before the value is read
		err := m.lend(func(value, secret []byte) {
			digest := sha256.Sum256(value)
			if same = digest == tried; !same {
				tried = digest
				r = m.exchange(value, secret)
			}
		})
		switch {
		case err != nil:
			return mintResult{failed: m.notLent(err)}
		case same:
			return mintResult{failed: m.refused()}
		case r.failed != errRefused:
			return r
		}
	}
}

// errRefused marks a refusal of the value itself.
var errRefused = &mintFailure{}

// lend lends the value, and the client's secret where there is one.
func (m *minting) lend(fn func(value, secret []byte)) error {
	return m.b.lend(m.open, m.cred.Name, func(value []byte) error {
		switch o := m.cred.OAuth; {
		case m.cred.Kind == access.KindOAuthClient:
			fn(nil, value)
		case o.Secret == "":
			fn(value, nil)
		default:
			err := m.b.lend(m.open, o.Secret, func(secret []byte) error {
				fn(value, secret)
				return nil
			})
			if errors.Is(err, vault.ErrMissing) {
				return &secretMissing{o.Secret}
			}
			return err
		}
		return nil
	})
}

// secretMissing names the credential that has no value.
type secretMissing struct{ name string }

func (e *secretMissing) Error() string { return "the credential " + e.name + " has no value yet" }

func (m *minting) notLent(err error) *mintFailure {
	name := m.cred.Name
	var second *secretMissing
	if errors.As(err, &second) {
		name = second.name
	}
	switch {
	case errors.Is(err, vault.ErrMissing), second != nil:
		return &mintFailure{"the credential " + name + " has no value yet", "The person must run: yett secret set " + name}
	case errors.Is(err, vault.ErrLocked):
		return nil
	}
	m.b.Log.Error("lending a credential for an exchange", "credential", name, "error", err)
	return &mintFailure{"the value of the credential " + name + " could not be opened", replace(name)}
}

// exchange sends a value to its token endpoint once. It is recorded before
// anything leaves, and what came of it afterwards.
func (m *minting) exchange(value, secret []byte) mintResult {
	if err := m.record("token.requested", nil); err != nil {
		m.b.Log.Error("an exchange could not be recorded, so it was not made", "error", err)
		return mintResult{failed: &mintFailure{"the exchange of " + m.cred.Name + " could not be recorded, so it was not made", "The person must run: yett doctor"}}
	}
	got, err := m.send(value, secret)
	if err != nil {
		m.record("token.received", map[string]any{"error": err.Error()})
		return m.failed(err)
	}
	out := map[string]any{"expires_in": int(got.Lives.Seconds()), "refresh_token": "kept"}
	if len(got.Refresh) > 0 && !bytes.Equal(got.Refresh, value) {
		out["refresh_token"] = "replaced"
		// Durable before use. A crash before this line leaves the old token,
		// which the endpoint may not take again.
		if err := m.renew(value, got.Refresh); err != nil {
			m.b.Log.Error("storing a new refresh token", "credential", m.cred.Name, "error", err)
			m.record("token.received", map[string]any{"error": errStored.Error()})
			if errors.Is(err, vault.ErrReplaced) { // the person's own is the newer one
				got.Wipe()
				return mintResult{failed: &mintFailure{"the value of " + m.cred.Name + " was replaced meanwhile", "Ask again."}}
			}
			return mintResult{failed: m.notStored(), unsaved: &unsaved{bytes.Clone(value), got}}
		}
	}
	m.record("token.received", out)
	return mintResult{minted: got}
}

// save stores a refresh token that could not be stored when it came.
func (m *minting) save(u *unsaved) mintResult {
	if err := m.renew(u.sent, u.minted.Refresh); err != nil {
		if errors.Is(err, vault.ErrReplaced) {
			u.wipe()
			return m.mintAnew()
		}
		m.b.Log.Error("storing a new refresh token", "credential", m.cred.Name, "error", err)
		return mintResult{failed: m.notStored(), unsaved: u}
	}
	m.record("token.received", map[string]any{"refresh_token": "replaced"})
	clear(u.sent)
	return mintResult{minted: u.minted}
}

func (m *minting) mintAnew() mintResult {
	m.claim.unsaved = nil
	return m.mint()
}

func (m *minting) renew(old, value []byte) error {
	declared, _ := place(m.open.policy, m.cred.Name)
	return m.b.Vault.RenewSecret(m.cred.Name, declared, old, value)
}

func (m *minting) notStored() *mintFailure {
	return &mintFailure{"the new refresh token of " + m.cred.Name + " could not be stored, so it is not used yet",
		"The person must see to it that the vault's disk can be written, and must not stop the broker; then ask again."}
}

// send is the exchange itself. Until its first byte it ends with its session;
// from then on it goes on whatever happens to that: a refresh token that was
// used must not be lost.
func (m *minting) send(value, secret []byte) (*httpexec.Minted, error) {
	o, t := m.cred.OAuth, m.cred.OAuth.Endpoint
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	begun := false
	stop := context.AfterFunc(m.way.ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !begun {
			cancel()
		}
	})
	defer stop()
	target := httpexec.Target{Scheme: t.Scheme, Host: t.Host, Port: t.Port, Private: m.cred.Private || t.NamesPrivate(),
		Way: wayToTokens(m.cred),
		Begin: func() error {
			mu.Lock()
			defer mu.Unlock()
			if m.way.stopped() {
				return errEnded
			}
			begun = true
			m.b.tokens.leaves(m.claim.turn)
			return nil
		}}
	return m.b.HTTP.Mint(ctx, target, httpexec.MintRequest{Path: t.Path, ClientID: o.ClientID, ClientSecret: secret, Auth: o.Auth,
		RefreshToken: value, Scopes: o.Scopes, Audience: o.Audience})
}

// failed says what an error of an exchange means.
func (m *minting) failed(err error) mintResult {
	var refusal *httpexec.MintError
	var e *httpexec.Error
	switch {
	case errors.As(err, &refusal) && (refusal.Code == "invalid_grant" || refusal.Code == "bad_refresh_token"):
		return mintResult{failed: errRefused}
	case errors.As(err, &refusal):
		next := "The person must look at client_id, scopes and auth of credential " + m.cred.Name + " in the access file, and at its value."
		if refusal.Status >= 500 || refusal.Status == 429 {
			next = "Ask again in a minute."
		}
		return mintResult{failed: &mintFailure{err.Error(), next}}
	case m.way.stopped() && (!errors.As(err, &e) || !e.MaybeSent):
		return mintResult{}
	}
	return mintResult{failed: &mintFailure{"no access token for " + m.cred.Name + ": " + err.Error(), "Ask again; if it goes on, the person must look at token_endpoint in the access file."}}
}

// refused is for a value that its endpoint does not take.
func (m *minting) refused() *mintFailure {
	if m.cred.Kind == access.KindOAuthRefresh {
		return &mintFailure{"the token endpoint does not take the stored refresh token of " + m.cred.Name + " (invalid_grant): it expired, was revoked, or was used elsewhere",
			"The person must sign in at the service again and run: " + "yett secret rotate " + m.cred.Name}
	}
	return &mintFailure{"the token endpoint does not take the stored value of " + m.cred.Name + " (invalid_grant)", replace(m.cred.Name)}
}

// record adds a row about the exchange: it names no value. What is asked for is
// durable before anything leaves.
func (m *minting) record(kind string, out map[string]any) error {
	row := ledger.Row{Kind: kind, SessionID: m.op.session.ID, OperationID: m.op.id, Verified: m.op.ch.verified,
		Request: marshal(map[string]any{"credential": m.cred.Name, "kind": m.cred.Kind, "token_endpoint": m.cred.OAuth.Endpoint.String()})}
	if out != nil {
		row.Outcome = marshal(out)
		m.b.Ledger.AppendSoon(row)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTime)
	defer cancel()
	_, err := m.b.Ledger.Append(ctx, row)
	return err
}
