package sshexec

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/crypto/ssh"
)

// rsaSHA2 are the RSA signatures that we make and take; SHA-1 is none of them.
var rsaSHA2 = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}

// sha2Signer is an RSA signer that makes these SHA-2 signatures only, and
// looks at what the signer below made of it.
type sha2Signer struct {
	ssh.AlgorithmSigner
	algorithms []string
}

func (s sha2Signer) Algorithms() []string { return slices.Clone(s.algorithms) }

// Sign makes a signature of the preferred kind; the one below would make a
// SHA-1 signature.
func (s sha2Signer) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return s.SignWithAlgorithm(rand, data, s.algorithms[0])
}

func (s sha2Signer) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	if !slices.Contains(s.algorithms, algorithm) {
		return nil, fmt.Errorf("signature algorithm %q is not used with RSA keys", algorithm)
	}
	sig, err := s.AlgorithmSigner.SignWithAlgorithm(rand, data, algorithm)
	if err != nil {
		return nil, fmt.Errorf("signing with %s: %w", algorithm, err)
	}
	if sig.Format != algorithm {
		return nil, fmt.Errorf("the signer made a %q signature where %s was asked for", sig.Format, algorithm)
	}
	return sig, nil
}

// onlyModern restricts an RSA signer to SHA-2; other signers stay as they are.
func onlyModern(s ssh.Signer) (ssh.Signer, error) {
	if s == nil {
		return nil, errors.New("no key was given")
	}
	if t := s.PublicKey().Type(); t != ssh.KeyAlgoRSA && t != ssh.CertAlgoRSAv01 {
		return s, nil
	}
	if _, ok := s.(sha2Signer); ok {
		return s, nil
	}
	as, ok := s.(ssh.AlgorithmSigner)
	if !ok {
		return nil, fmt.Errorf("the RSA signer cannot make %s or %s signatures", rsaSHA2[0], rsaSHA2[1])
	}
	return sha2Signer{as, rsaSHA2}, nil
}

// eachAlgorithm returns s once for each of its algorithms. OpenSSH announces
// all that it knows in server-sig-algs, not what its configuration accepts, so
// the first choice may be refused where the second is taken.
func eachAlgorithm(s ssh.Signer) []ssh.Signer {
	rsa, ok := s.(sha2Signer)
	if !ok {
		return []ssh.Signer{s}
	}
	var each []ssh.Signer
	for _, a := range rsa.algorithms {
		each = append(each, sha2Signer{rsa.AlgorithmSigner, []string{a}})
	}
	return each
}

func algorithmsOf(s ssh.Signer) []string {
	if rsa, ok := s.(sha2Signer); ok {
		return rsa.algorithms
	}
	return []string{s.PublicKey().Type()}
}
