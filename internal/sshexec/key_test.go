package sshexec_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/sshexec"
)

var keyKinds = map[string][]string{
	"ed25519":   {"-t", "ed25519"},
	"ecdsa 256": {"-t", "ecdsa", "-b", "256"},
	"ecdsa 384": {"-t", "ecdsa", "-b", "384"},
	"ecdsa 521": {"-t", "ecdsa", "-b", "521"},
	"rsa":       {"-t", "rsa", "-b", "2048"},
}

func TestS13_UnencryptedKeysOfEveryForm(t *testing.T) {
	for kind, args := range keyKinds {
		for _, form := range []string{"RFC4716", "PKCS8", "PEM"} {
			t.Run(kind+" "+form, func(t *testing.T) {
				_, private, public := keygen(t, append([]string{"-N", "", "-C", "", "-m", form}, args...)...)
				for name, text := range map[string][]byte{
					"as it is":           private,
					"CRLF":               bytes.ReplaceAll(private, []byte("\n"), []byte("\r\n")),
					"no last newline":    bytes.TrimRight(private, "\n"),
					"blank lines around": append(append([]byte("\n\n"), private...), "\n \n"...),
					"byte order mark":    append([]byte("\xef\xbb\xbf"), private...),
				} {
					before := bytes.Clone(text)
					k, err := sshexec.ParseKey(text)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					if got := publicLine(k.PublicKey()); got != public {
						t.Errorf("%s: public part %s, want %s", name, got, public)
					}
					if !bytes.Equal(text, before) {
						t.Errorf("%s: ParseKey changed the secret", name)
					}
				}
			})
		}
	}
}

func wantReason(t testing.TB, secret []byte, want sshexec.KeyReason) {
	t.Helper()
	_, err := sshexec.ParseKey(secret)
	var e *sshexec.KeyError
	if !errors.As(err, &e) || e.Reason != want {
		t.Errorf("err = %v (%T), want reason %s", err, err, want)
	}
}

func TestS13_EncryptedKeysAreNamedAsSuch(t *testing.T) {
	for kind, args := range keyKinds {
		for _, form := range [][]string{
			{"-m", "PEM"}, {"-m", "PKCS8"}, {"-a", "1", "-Z", "aes256-ctr"}, {"-a", "1", "-Z", "aes256-cbc"},
			{"-a", "1", "-Z", "aes256-gcm@openssh.com"}, {"-a", "1", "-Z", "chacha20-poly1305@openssh.com"}, {"-a", "100"},
		} {
			if form[1] == "100" && kind != "ed25519" {
				continue // slow to make, and the kind makes no difference
			}
			t.Run(kind+" "+form[len(form)-1], func(t *testing.T) {
				_, private, _ := keygen(t, append(append([]string{"-N", "a passphrase"}, form...), args...)...)
				wantReason(t, private, sshexec.KeyEncrypted)
				wantReason(t, bytes.ReplaceAll(private, []byte("\n"), []byte("\r\n")), sshexec.KeyEncrypted)
			})
		}
	}
}

// securityKeyFile is a key file as ssh-keygen -t ed25519-sk writes it, with or
// without a passphrase: what stands in its private part is not looked at.
func securityKeyFile(kind, cipher string) []byte {
	public := ssh.Marshal(struct {
		Kind, Key, Application string
	}{kind, strings.Repeat("k", 32), "ssh:"})
	kdf := map[string]string{"none": "none", "aes256-ctr": "bcrypt"}[cipher]
	body := ssh.Marshal(struct {
		Cipher, KDF string
		Options     []byte
		Keys        uint32
		Public      []byte
		Private     []byte
	}{cipher, kdf, nil, 1, public, make([]byte, 128)})
	return pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: append([]byte("openssh-key-v1\x00"), body...)})
}

// S13: a key in a security key is told apart, encrypted or not.
func TestS13_SecurityKeysAreNamedAsSuch(t *testing.T) {
	for _, kind := range []string{"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"} {
		for _, cipher := range []string{"none", "aes256-ctr"} {
			_, err := sshexec.ParseKey(securityKeyFile(kind, cipher))
			var why *sshexec.KeyError
			if !errors.As(err, &why) || why.Reason != sshexec.KeyHardware || !strings.Contains(err.Error(), "security key") {
				t.Errorf("%s, %s: %v", kind, cipher, err)
			}
		}
	}
}

func TestS13_WhatIsNotAPrivateKey(t *testing.T) {
	_, private, public := keygen(t, "-t", "ed25519", "-N", "")
	path, rsaPrivate, _ := keygen(t, "-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM")
	_, other, _ := keygen(t, "-t", "ed25519", "-N", "")
	export := func(form string) []byte {
		out, err := exec.Command("ssh-keygen", "-e", "-m", form, "-f", path+".pub").Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, mixed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mixed[40] ^= 1 // in the public half
	mixedBlock, err := ssh.MarshalPrivateKey(mixed, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		secret []byte
		want   sshexec.KeyReason
	}{
		"nothing":                {nil, sshexec.KeyEmpty},
		"blanks":                 {[]byte(" \r\n\t"), sshexec.KeyEmpty},
		"public line":            {[]byte(public), sshexec.KeyPublic},
		"public RFC 4716":        {export("RFC4716"), sshexec.KeyPublic},
		"public PKCS8":           {export("PKCS8"), sshexec.KeyPublic},
		"certificate":            {[]byte(certificate(t, public)), sshexec.KeyPublic},
		"prose":                  {[]byte("correct horse battery staple"), sshexec.KeyDamaged},
		"half":                   {private[:len(private)/2], sshexec.KeyDamaged},
		"without the first line": {private[bytes.IndexByte(private, '\n')+1:], sshexec.KeyDamaged},
		"on one line":            {bytes.ReplaceAll(private, []byte("\n"), []byte(" ")), sshexec.KeyDamaged},
		"RSA cut within":         {cutBody(t, rsaPrivate), sshexec.KeyDamaged},
		"OpenSSH cut within":     {cutBody(t, private), sshexec.KeyDamaged},
		"halves that differ":     {pem.EncodeToMemory(mixedBlock), sshexec.KeyDamaged},
		"two keys":               {append(bytes.Clone(private), other...), sshexec.KeySeveral},
		"PuTTY":                  {[]byte("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n"), sshexec.KeyUnsupported},
		"DSA":                    {pem.EncodeToMemory(&pem.Block{Type: "DSA PRIVATE KEY", Bytes: []byte{48, 0}}), sshexec.KeyUnsupported},
		"X25519":                 {pkcs8(t, x25519), sshexec.KeyUnsupported},
		"P-224":                  {pkcs8(t, p224), sshexec.KeyUnsupported},
	} {
		t.Run(name, func(t *testing.T) { wantReason(t, c.secret, c.want) })
	}
}

func TestS13_CurveParametersBeforeAnECKeyArePassedOver(t *testing.T) {
	_, private, public := keygen(t, "-t", "ecdsa", "-N", "", "-C", "", "-m", "PEM")
	// What 'openssl ecparam -genkey' writes first.
	params := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}})
	if got := publicLine(parseKey(t, append(params, private...)).PublicKey()); got != public {
		t.Errorf("public part %s, want %s", got, public)
	}
	wantReason(t, params, sshexec.KeyDamaged)
}

func pkcs8(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// cutBody shortens what a PEM block holds, with its lines intact.
func cutBody(t testing.TB, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("no block")
	}
	block.Bytes = block.Bytes[:len(block.Bytes)*2/3]
	return pem.EncodeToMemory(block)
}

// No altered byte makes a key that says it is another one than it signs as,
// and no error holds a part of the secret.
func FuzzParseKey(f *testing.F) {
	seeds := 0
	for _, args := range keyKinds {
		for _, form := range []string{"RFC4716", "PKCS8", "PEM"} {
			_, private, public := keygen(f, append([]string{"-N", "", "-m", form}, args...)...)
			for _, seed := range [][]byte{private, []byte(public), cutBody(f, private), bytes.ToUpper(private)} {
				f.Add(seed)
				seeds++
			}
			for i := 0; i < len(private); i += 37 {
				altered := bytes.Clone(private)
				altered[i] ^= 5
				f.Add(altered)
			}
		}
	}
	if seeds == 0 {
		f.Fatal("the corpus is empty")
	}
	sentences := make(map[string]bool)
	for _, r := range []sshexec.KeyReason{
		sshexec.KeyEmpty, sshexec.KeyEncrypted, sshexec.KeyPublic, sshexec.KeyDamaged, sshexec.KeyUnsupported, sshexec.KeySeveral,
	} {
		sentences[(&sshexec.KeyError{Reason: r}).Error()] = true
	}
	if sentences[""] || len(sentences) != 6 {
		f.Fatalf("sentences: %v", sentences)
	}
	f.Fuzz(func(t *testing.T, secret []byte) {
		k, err := sshexec.ParseKey(secret)
		if err != nil {
			var e *sshexec.KeyError
			if !errors.As(err, &e) || !sentences[err.Error()] {
				t.Fatalf("err = %v (%T), not one of the fixed sentences", err, err)
			}
			return
		}
		sig, err := k.Sign(rand.Reader, []byte("data"))
		if err != nil {
			t.Fatalf("a key that cannot sign: %v", err)
		}
		if err := k.PublicKey().Verify([]byte("data"), sig); err != nil {
			t.Fatalf("a key that is not what it says: %v", err)
		}
	})
}
