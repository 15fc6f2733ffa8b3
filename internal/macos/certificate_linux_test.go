package macos

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// signed is a program that is signed with a certificate of a test's own: its
// pages and code directory are made here, the signature over them by OpenSSL,
// in the form of Apple's (a detached CMS in the last blob).
type signed struct {
	file []byte
	ca   *x509.Certificate
}

const (
	testTeam       = "ABCDE12345"
	testIdentifier = "com.example.agent"
)

// openssl runs it in dir and returns the file out of it.
func openssl(t *testing.T, dir, out string, args ...string) []byte {
	t.Helper()
	c := exec.Command("openssl", args...)
	c.Dir = dir
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("openssl %v: %v\n%s", args, err, text)
	}
	b, err := os.ReadFile(filepath.Join(dir, out))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func signWithCertificate(t *testing.T) signed {
	t.Helper()
	dir := t.TempDir()
	ec := []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-x509", "-days", "36500", "-outform", "DER"}
	ca := openssl(t, dir, "ca.der", append([]string{"req", "-keyout", "ca.key", "-out", "ca.der", "-subj", "/CN=Test Authority"}, ec...)...)
	openssl(t, dir, "ca.pem", "x509", "-inform", "DER", "-in", "ca.der", "-out", "ca.pem")
	openssl(t, dir, "leaf.pem", append(append([]string{"req", "-keyout", "leaf.key", "-out", "leaf.pem", "-CA", "ca.pem", "-CAkey", "ca.key",
		"-subj", "/CN=Developer ID Application: Test/OU=" + testTeam, "-addext", "1.2.840.113635.100.6.1.13=critical,DER:05:00"}, ec[:len(ec)-2]...), "-outform", "PEM")...)

	const requirements = "\xfa\xde\x0c\x01\x00\x00\x00\x0c\x00\x00\x00\x00" // an empty set
	sign := func(directory []byte) []byte {
		if err := os.WriteFile(filepath.Join(dir, "directory"), directory, 0o600); err != nil {
			t.Fatal(err)
		}
		return openssl(t, dir, "cms", "cms", "-sign", "-binary", "-in", "directory", "-signer", "leaf.pem", "-inkey", "leaf.key",
			"-md", "sha256", "-nosmimecap", "-outform", "DER", "-out", "cms")
	}
	// An ECDSA signature has 70 to 72 bytes: a file whose pages were made for
	// another length is made once more.
	for size := 1400; ; {
		code := thinCode(size)
		directory := teamDirectory(code, []byte(requirements))
		file := append(code, superBlob(directory, []byte(requirements), sign(directory))...)
		if want := len(file) - len(code); want != size {
			size = want
			continue
		}
		parsed, err := x509.ParseCertificate(ca)
		if err != nil {
			t.Fatal(err)
		}
		return signed{file, parsed}
	}
}

// thinCode is three pages of a program for arm64 without anything in it, which
// a signature of some bytes follows.
func thinCode(signature int) []byte {
	const pages = 3 * 4096
	le := binary.LittleEndian
	segment := func(name string, at, size uint64) []byte {
		b := make([]byte, 72)
		le.PutUint32(b, 0x19)
		le.PutUint32(b[4:], 72)
		copy(b[8:24], name)
		for i, v := range []uint64{at, size, at, size} {
			le.PutUint64(b[24+8*i:], v)
		}
		return b
	}
	commands := append(segment("__TEXT", 0, 2*4096), segment("__LINKEDIT", 2*4096, 4096+uint64(signature))...)
	for _, v := range []uint32{loadCodeSignature, 16, pages, uint32(signature)} {
		commands = le.AppendUint32(commands, v)
	}
	var b []byte
	for _, v := range []uint32{0xfeedfacf, 0x0100000c, 0, 2, 3, uint32(len(commands)), 0, 0} {
		b = le.AppendUint32(b, v)
	}
	b = append(b, commands...)
	for len(b) < pages {
		b = append(b, byte(len(b)*7))
	}
	return b
}

// teamDirectory is a code directory of version 0x20200, with a team, two
// special slots, and no flags.
func teamDirectory(code, requirements []byte) []byte {
	const header = 52
	text := testIdentifier + "\x00" + testTeam + "\x00"
	hashes := header + len(text) + 2*sha256.Size
	pages := len(code) / 4096
	var b []byte
	for _, v := range []int{magicCodeDirectory, hashes + pages*sha256.Size, 0x20200, 0, hashes, header, 2, pages, len(code)} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	b = append(b, sha256.Size, 2, 0, 12)
	for _, v := range []int{0, 0, header + len(testIdentifier) + 1} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	b = append(b, text...)
	sum := sha256.Sum256(requirements)
	b = append(append(b, sum[:]...), make([]byte, sha256.Size)...) // slots 2 and 1
	for at := 0; at < len(code); at += 4096 {
		page := sha256.Sum256(code[at : at+4096])
		b = append(b, page[:]...)
	}
	return b
}

func superBlob(directory, requirements, cms []byte) []byte {
	wrapped := binary.BigEndian.AppendUint32([]byte{0xfa, 0xde, 0x0b, 0x01}, uint32(8+len(cms)))
	wrapped = append(wrapped, cms...)
	slots, blobs := []uint32{slotCodeDirectory, 2, slotSignature}, [][]byte{directory, requirements, wrapped}
	at := 12 + 8*len(blobs)
	var index, body []byte
	for i, blob := range blobs {
		index = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(index, slots[i]), uint32(at))
		at += len(blob)
		body = append(body, blob...)
	}
	b := binary.BigEndian.AppendUint32([]byte{0xfa, 0xde, 0x0c, 0xc0}, uint32(at))
	return append(append(binary.BigEndian.AppendUint32(b, uint32(len(blobs))), index...), body...)
}

// Of CMS (RFC 5652), what such a signature is made of and nothing else.
type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue // in [0], the data
}

type signedData struct {
	Version      int
	Digests      []algorithm `asn1:"set"`
	Encapsulated struct{ Type asn1.ObjectIdentifier }
	Certificates asn1.RawValue `asn1:"tag:0"`
	Signers      []signerInfo  `asn1:"set"`
}

type algorithm struct {
	Name       asn1.ObjectIdentifier
	Parameters asn1.RawValue `asn1:"optional"`
}

type signerInfo struct {
	Version int
	By      struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	Digest     algorithm
	Attributes asn1.RawValue `asn1:"tag:0"`
	Signature  algorithm
	Value      []byte
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values asn1.RawValue
}

var (
	oidSignedData    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidData          = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidContentType   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
	oidSHA256        = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidECDSA         = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}
	oidDeveloperID   = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 1, 13}
)

// whoSigned checks the CMS of a signature over its directory and returns the
// leaf's organizational unit. It stands for Security.framework in tests.
func whoSigned(c Code, ca *x509.Certificate) (string, error) {
	blob := c.blobs[slotSignature]
	if len(blob) < 8 || !bytes.Equal(blob[:4], []byte{0xfa, 0xde, 0x0b, 0x01}) {
		return "", errors.New("the signature's blob is of another kind")
	}
	var info contentInfo
	if rest, err := asn1.Unmarshal(blob[8:], &info); err != nil || len(rest) != 0 {
		return "", fmt.Errorf("%d bytes more: %v", len(rest), err)
	}
	var data signedData
	if rest, err := asn1.Unmarshal(info.Content.Bytes, &data); err != nil || len(rest) != 0 || info.Content.FullBytes[0] != 0xa0 {
		return "", fmt.Errorf("%d bytes more: %v", len(rest), err)
	}
	if len(data.Digests) != 1 || len(data.Signers) != 1 {
		return "", errors.New("not one signer")
	}
	s := data.Signers[0]
	leaf, err := x509.ParseCertificate(data.Certificates.Bytes)
	if err != nil {
		return "", err
	}
	switch {
	case !info.Type.Equal(oidSignedData), data.Version != 1, !data.Encapsulated.Type.Equal(oidData), s.Version != 1,
		!plain(data.Digests[0], oidSHA256), !plain(s.Digest, oidSHA256), !plain(s.Signature, oidECDSA):
		return "", errors.New("a signature of another form")
	case !bytes.Equal(s.By.Issuer.FullBytes, leaf.RawIssuer) || s.By.Serial.Cmp(leaf.SerialNumber) != 0:
		return "", errors.New("signed by another certificate")
	}
	if err := leaf.CheckSignatureFrom(ca); err != nil {
		return "", err
	}
	if err := checkAttributes(s.Attributes.Bytes, c.blobs[slotCodeDirectory]); err != nil {
		return "", err
	}
	covered := bytes.Clone(s.Attributes.FullBytes)
	covered[0] = 0x31 // signed as a set
	if err := leaf.CheckSignature(x509.ECDSAWithSHA256, covered, s.Value); err != nil {
		return "", err
	}
	for _, e := range leaf.Extensions {
		if e.Id.Equal(oidDeveloperID) && len(leaf.Subject.OrganizationalUnit) == 1 {
			return leaf.Subject.OrganizationalUnit[0], nil
		}
	}
	return "", errors.New("no Developer ID")
}

// plain reports whether an algorithm is this one, without a parameter.
func plain(a algorithm, want asn1.ObjectIdentifier) bool {
	return a.Name.Equal(want) && len(a.Parameters.FullBytes) == 0
}

// checkAttributes: the content is data, and its digest is the directory's.
func checkAttributes(raw, directory []byte) error {
	sum, found := sha256.Sum256(directory), 0
	for len(raw) > 0 {
		var a attribute
		var err error
		if raw, err = asn1.Unmarshal(raw, &a); err != nil {
			return err
		}
		switch {
		case a.Type.Equal(oidMessageDigest) && bytes.Equal(a.Values.Bytes, append([]byte{4, sha256.Size}, sum[:]...)), a.Type.Equal(oidContentType):
			found++
		}
	}
	if found != 2 {
		return errors.New("the signature is about something else")
	}
	return nil
}

// TestSignedWithACertificate reads a program that a certificate signed: its
// identifier and team, and the leaf that the requirement's text names. Each byte
// that is changed is noticed: of the pages and the directory by this package, of
// the signature over the directory by whoever checks that, a Mac or this test.
func TestSignedWithACertificate(t *testing.T) {
	s := signWithCertificate(t)
	judge := func() (CDHash, error) {
		all, err := ReadCode(bytes.NewReader(s.file), int64(len(s.file)))
		if err != nil {
			return CDHash{}, err
		}
		c := all[0]
		if err := c.Verify(); err != nil {
			return CDHash{}, err
		}
		team, err := whoSigned(c, s.ca)
		if err == nil && (team != testTeam || c.Team != team || c.Identifier != testIdentifier || c.Flags != 0) {
			err = fmt.Errorf("%q of team %q, signed by %q, flags %#x", c.Identifier, c.Team, team, c.Flags)
		}
		return c.CDHash, err
	}
	was, err := judge()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := (Signature{SignedByTeam, testIdentifier, testTeam, was}).Requirement(); err != nil || !bytes.Contains([]byte(text), []byte(oidDeveloperID.String())) {
		t.Errorf("its requirement: %s, %v", text, err)
	}
	for i := range s.file {
		s.file[i] ^= 0x55
		if _, err := judge(); err == nil {
			t.Errorf("byte %#x of %#x counts for nothing", i, len(s.file))
		}
		s.file[i] ^= 0x55
	}
}
