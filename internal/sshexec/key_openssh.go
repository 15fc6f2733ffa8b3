package sshexec

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/poly1305" //nolint:staticcheck // OpenSSH's construction is not the AEAD of RFC 8439
	"golang.org/x/crypto/ssh"
)

// maxRounds bounds the work that a key file may ask for: half a minute at most.
// ssh-keygen writes 16 or 24 rounds unless it is told otherwise.
const maxRounds = 1000

// openSSHMagic begins a key as PROTOCOL.key of OpenSSH describes it.
const openSSHMagic = "openssh-key-v1\x00"

// openSSHFile is what follows the magic. What an authenticated cipher adds
// stands behind the private part and is not counted in its length.
type openSSHFile struct {
	Cipher, KDF string
	KDFOptions  []byte
	Keys        uint32
	Public      []byte
	Private     []byte
	Tag         []byte `ssh:"rest"`
}

// openSSHCipher undoes one of OpenSSH's ciphers.
type openSSHCipher struct {
	key, iv, tag int
	block        int
	open         func(key, iv, text, tag []byte) ([]byte, error)
}

var openSSHCiphers = map[string]openSSHCipher{
	"aes128-ctr":                    {16, 16, 0, 16, openCTR},
	"aes192-ctr":                    {24, 16, 0, 16, openCTR},
	"aes256-ctr":                    {32, 16, 0, 16, openCTR},
	"aes128-cbc":                    {16, 16, 0, 16, openCBC},
	"aes192-cbc":                    {24, 16, 0, 16, openCBC},
	"aes256-cbc":                    {32, 16, 0, 16, openCBC},
	"3des-cbc":                      {24, 8, 0, 8, open3DES},
	"aes128-gcm@openssh.com":        {16, 12, 16, 16, openGCM},
	"aes256-gcm@openssh.com":        {32, 12, 16, 16, openGCM},
	"chacha20-poly1305@openssh.com": {64, 0, 16, 8, openChaCha},
}

func openOpenSSH(file []byte) (func(passphrase []byte) ([]byte, error), error) {
	body, ok := bytes.CutPrefix(file, []byte(openSSHMagic))
	if !ok {
		return nil, &KeyError{KeyDamaged}
	}
	var f openSSHFile
	if ssh.Unmarshal(body, &f) != nil {
		return nil, &KeyError{KeyDamaged}
	}
	c, known := openSSHCiphers[f.Cipher]
	var kdf struct {
		Salt   []byte
		Rounds uint32
	}
	switch {
	case f.Keys != 1:
		return nil, &KeyError{KeySeveral}
	case !known, f.KDF != "bcrypt":
		return nil, &KeyError{KeyUnsupported}
	case ssh.Unmarshal(f.KDFOptions, &kdf) != nil, kdf.Rounds == 0, len(kdf.Salt) == 0, len(kdf.Salt) > 1024,
		len(f.Private) == 0, len(f.Private)%c.block != 0, len(f.Tag) != c.tag:
		return nil, &KeyError{KeyDamaged}
	case kdf.Rounds > maxRounds:
		return nil, &KeyError{KeyCostly}
	}
	return func(passphrase []byte) ([]byte, error) {
		k, err := bcryptPBKDF(passphrase, kdf.Salt, int(kdf.Rounds), c.key+c.iv)
		if err != nil {
			return nil, &KeyError{KeyPassphrase} // an empty one, which bcrypt does not take
		}
		defer clear(k)
		private, err := c.open(k[:c.key], k[c.key:], f.Private, f.Tag)
		defer clear(private)
		if err != nil || !checked(private) {
			return nil, &KeyError{KeyPassphrase}
		}
		plain := append([]byte(openSSHMagic), ssh.Marshal(openSSHFile{Cipher: "none", KDF: "none", Keys: 1, Public: f.Public, Private: private})...)
		defer clear(plain)
		return pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: plain}), nil
	}, nil
}

// checked compares the two equal numbers at the beginning of a private part, by
// which a wrong passphrase is known.
func checked(private []byte) bool { return len(private) >= 8 && bytes.Equal(private[:4], private[4:8]) }

func openCTR(key, iv, text, _ []byte) ([]byte, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(text))
	cipher.NewCTR(b, iv).XORKeyStream(out, text)
	return out, nil
}

func openCBC(key, iv, text, _ []byte) ([]byte, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return decryptBlocks(b, iv, text), nil
}

func open3DES(key, iv, text, _ []byte) ([]byte, error) {
	b, err := des.NewTripleDESCipher(key)
	if err != nil {
		return nil, err
	}
	return decryptBlocks(b, iv, text), nil
}

func decryptBlocks(b cipher.Block, iv, text []byte) []byte {
	out := make([]byte, len(text))
	cipher.NewCBCDecrypter(b, iv).CryptBlocks(out, text)
	return out
}

func openGCM(key, iv, text, tag []byte) ([]byte, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(b)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, iv, append(bytes.Clone(text), tag...), nil)
}

// openChaCha is for packet 0 without a length: the second half of the key is
// for lengths.
func openChaCha(key, _, text, tag []byte) ([]byte, error) {
	s, err := chacha20.NewUnauthenticatedCipher(key[:32], make([]byte, chacha20.NonceSize))
	if err != nil {
		return nil, err
	}
	var once [32]byte
	defer clear(once[:])
	s.XORKeyStream(once[:], once[:])
	if !poly1305.Verify((*[16]byte)(tag), text, &once) {
		return nil, errors.New("the tag differs")
	}
	s.SetCounter(1)
	out := make([]byte, len(text))
	s.XORKeyStream(out, text)
	return out, nil
}
