package sshexec

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Kinds of keys that GenerateKey makes.
const (
	KindED25519 = "ed25519"
	KindECDSA   = "ecdsa" // P-256
	KindRSA     = "rsa"   // 3072 bits
)

// GenerateKey makes a private key that exists nowhere else, as ParseKey reads
// it. The caller clears it.
func GenerateKey(kind string) ([]byte, error) {
	var key crypto.PrivateKey
	var err error
	switch kind {
	case KindED25519:
		var private ed25519.PrivateKey
		_, private, err = ed25519.GenerateKey(rand.Reader)
		defer clear(private)
		key = private
	case KindECDSA:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case KindRSA:
		key, err = rsa.GenerateKey(rand.Reader, 3072)
	default:
		return nil, fmt.Errorf("keys of kind %q are not made", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, fmt.Errorf("writing a key: %w", err)
	}
	defer clear(block.Bytes)
	return pem.EncodeToMemory(block), nil
}

// PublicLine is the public part of a key as authorized_keys has it.
func PublicLine(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}
