package demo

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"

	"golang.org/x/crypto/ssh"
)

// minSpelling is the shortest text that is searched for: a shorter one would
// be met by chance.
const minSpelling = 12

// Canaries are planted secrets that must turn up nowhere. They are searched
// for as they are, in base64 (both alphabets, at every alignment, so that it
// is found inside something larger too) and in hexadecimal.
type Canaries struct {
	spellings []spelling
}

type spelling struct {
	name  string
	bytes []byte
}

// Plant adds a secret under the name by which it is reported.
func (c *Canaries) Plant(name string, secret []byte) {
	add := func(form string, b []byte) {
		if len(b) >= minSpelling {
			c.spellings = append(c.spellings, spelling{name + form, b})
		}
	}
	add("", bytes.Clone(secret))
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			add(" in base64", inBase64(alphabet, secret, shift))
		}
	}
	add(" in hex", []byte(hex.EncodeToString(secret)))
	add(" in hex", bytes.ToUpper([]byte(hex.EncodeToString(secret))))
}

// inBase64 returns the characters that depend on the secret alone when shift
// bytes of something else stand before it in its group of three.
func inBase64(alphabet *base64.Encoding, secret []byte, shift int) []byte {
	padded := append(make([]byte, shift), secret...)
	text := alphabet.AppendEncode(nil, padded)
	from := (shift*8 + 5) / 6
	to := len(padded) * 8 / 6
	if from >= to {
		return nil
	}
	return text[from:to]
}

// PlantKey adds an Ed25519 private key in PEM: the lines of its body, but for
// those that every such key has, and the secret number itself.
func (c *Canaries) PlantKey(name string, key []byte) error {
	parsed, err := ssh.ParseRawPrivateKey(key)
	if err != nil {
		return fmt.Errorf("reading the planted key: %w", err)
	}
	secret, ok := parsed.(*ed25519.PrivateKey)
	if !ok {
		return fmt.Errorf("the planted key is a %T, not an Ed25519 key", parsed)
	}
	c.Plant(name, secret.Seed())
	another, _, err := newKey()
	if err != nil {
		return err
	}
	for line := range bytes.Lines(key) {
		if line = bytes.TrimSpace(line); !bytes.Contains(another, line) {
			c.Plant(name, line)
		}
	}
	return nil
}

// In names the secrets that stand in b, each once.
func (c *Canaries) In(b []byte) []string {
	var found []string
	for _, s := range c.spellings {
		if !slices.Contains(found, s.name) && bytes.Contains(b, s.bytes) {
			found = append(found, s.name)
		}
	}
	return found
}
