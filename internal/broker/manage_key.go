package broker

import (
	"errors"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// generateKey makes a private key that never leaves the broker: it is sealed in
// the vault, and the answer has its public part.
func (o *operator) generateKey(r wire.KeyGenerate) (any, *wire.Error) {
	if _, fail := o.declaredKey(r.Name); fail != nil {
		return nil, fail
	}
	value, err := sshexec.GenerateKey(r.Type)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "No key was made: %v.", err).
			Then("Kinds are ed25519, ecdsa and rsa.")
	}
	defer clear(value)
	signer, err := sshexec.ParseKey(value)
	if err != nil {
		o.b.Log.Error("reading a key that was just made", "error", err)
		return nil, wire.NewError(wire.CodeInternal)
	}
	if _, fail := o.setSecret(wire.SecretSet{Name: r.Name, Value: value}, r.Rotate); fail != nil {
		return nil, fail
	}
	return public(r.Name, signer), nil
}

// publicKey answers with the public part of a stored key.
func (o *operator) publicKey(r wire.SecretName) (any, *wire.Error) {
	declared, fail := o.declaredKey(r.Name)
	if fail != nil {
		return nil, fail
	}
	var answer wire.KeyPublic
	var unusable error
	err := o.b.Vault.Use(r.Name, declared, func(secret []byte) error {
		signer, err := sshexec.ParseKey(secret)
		if unusable = err; err == nil {
			answer = public(r.Name, signer)
		}
		return nil
	})
	if errors.Is(err, vault.ErrMissing) {
		return nil, wire.Errorf(wire.CodeBadRequest, "%s has no value yet.", clip(r.Name)).
			Then("Make one: yett ssh keygen " + clip(r.Name))
	}
	if err != nil {
		return nil, o.vaultFailed("reading a key", err)
	}
	if unusable != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "The stored key cannot be used: %v.", unusable)
	}
	return answer, nil
}

func public(name string, s ssh.Signer) wire.KeyPublic {
	return wire.KeyPublic{PublicKey: sshexec.PublicLine(s) + " yett-" + name, Fingerprint: ssh.FingerprintSHA256(s.PublicKey())}
}

// declaredKey is the place of a declared credential of kind ssh-key.
func (o *operator) declaredKey(name string) (vault.Declared, *wire.Error) {
	open := o.b.state()
	if open == nil {
		return vault.Declared{}, wire.NewError(wire.CodeLocked)
	}
	declared, ok := place(open.policy, name)
	switch {
	case !ok:
		return declared, wire.Errorf(wire.CodeBadRequest, "No credential %s is declared.", clip(name)).
			Then("Declare it with its host in the access file and run yett apply; or add both: yett add ssh.")
	case declared.Kind != access.KindSSHKey:
		return declared, wire.Errorf(wire.CodeBadRequest, "The credential %s is of kind %s, not ssh-key.", clip(name), declared.Kind)
	}
	return declared, nil
}
