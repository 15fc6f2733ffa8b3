package sshexec_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/yett-broker/yett/internal/sshexec"
)

func wantUnlock(t testing.TB, secret []byte, passphrase, public string) {
	t.Helper()
	before := bytes.Clone(secret)
	plain, err := sshexec.UnlockKey(secret, []byte(passphrase))
	if err != nil {
		t.Errorf("UnlockKey(%q): %v", passphrase, err)
		return
	}
	if k := parseKey(t, plain); publicLine(k.PublicKey()) != strings.Join(strings.Fields(public)[:2], " ") {
		t.Errorf("another key: %s, want %s", publicLine(k.PublicKey()), public)
	}
	if !bytes.Equal(secret, before) {
		t.Error("UnlockKey changed the secret")
	}
}

func wantLocked(t testing.TB, secret []byte, passphrase string, want sshexec.KeyReason) {
	t.Helper()
	plain, err := sshexec.UnlockKey(secret, []byte(passphrase))
	var e *sshexec.KeyError
	if !errors.As(err, &e) || e.Reason != want || plain != nil {
		t.Errorf("err = %v (%T), want reason %s", err, err, want)
	}
}

// encryptedForms are how ssh-keygen encrypts a key; of an Ed25519 key it writes
// its own form only. Few rounds are quick: the race detector makes each of them
// a quarter of a second.
var encryptedForms = map[string][]string{
	"PEM":               {"-m", "PEM"},
	"PKCS8":             {"-m", "PKCS8"},
	"three rounds":      {"-a", "3"},
	"aes128-ctr":        {"-a", "1", "-Z", "aes128-ctr"},
	"aes256-ctr":        {"-a", "1", "-Z", "aes256-ctr"},
	"aes192-cbc":        {"-a", "1", "-Z", "aes192-cbc"},
	"3des-cbc":          {"-a", "1", "-Z", "3des-cbc"},
	"aes128-gcm":        {"-a", "1", "-Z", "aes128-gcm@openssh.com"},
	"aes256-gcm":        {"-a", "1", "-Z", "aes256-gcm@openssh.com"},
	"chacha20-poly1305": {"-a", "1", "-Z", "chacha20-poly1305@openssh.com"},
}

func TestS13_EncryptedKeysOpenByTheirPassphrase(t *testing.T) {
	for kind, args := range keyKinds {
		for form, options := range encryptedForms {
			if other := form == "PEM" || form == "PKCS8"; other == (kind == "ed25519") && form != "aes256-ctr" {
				continue // the kind makes no difference to a cipher
			}
			t.Run(kind+" "+form, func(t *testing.T) {
				_, private, public := keygen(t, append(append([]string{"-N", "a passphrase"}, options...), args...)...)
				wantUnlock(t, private, "a passphrase", public)
				wantLocked(t, private, "another passphrase", sshexec.KeyPassphrase)
				if form != "aes256-ctr" && form != "PKCS8" {
					return
				}
				wantUnlock(t, bytes.ReplaceAll(private, []byte("\n"), []byte("\r\n")), "a passphrase", public)
				wantUnlock(t, bytes.TrimRight(private, "\n"), "a passphrase", public)
				wantLocked(t, private, "", sshexec.KeyPassphrase)
			})
		}
	}
}

// A letter with an accent is one character on one system and two on another.
func TestS13_PassphraseInEitherNormalForm(t *testing.T) {
	const word = "pässwört ệ"
	for _, made := range []norm.Form{norm.NFC, norm.NFD} {
		for _, options := range [][]string{{"-t", "ed25519", "-a", "1"}, {"-t", "ecdsa", "-m", "PKCS8"}} {
			_, private, public := keygen(t, append([]string{"-N", made.String(word)}, options...)...)
			wantUnlock(t, private, norm.NFC.String(word), public)
			wantUnlock(t, private, norm.NFD.String(word), public)
		}
	}
}

func openssl(t testing.TB, stdin []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("openssl", args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("openssl %q: %v (Debian: apt-get install openssl)", args, err)
	}
	return out
}

func TestS13_PKCS8AsOpenSSLWritesIt(t *testing.T) {
	_, plain, public := keygen(t, "-t", "rsa", "-N", "", "-m", "PKCS8")
	for name, args := range map[string][]string{
		"SHA-1":              {"-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA1"},
		"SHA-512":            {"-v2", "aes-192-cbc", "-v2prf", "hmacWithSHA512", "-iter", "50000"},
		"triple DES":         {"-v2", "des3"},
		"scrypt":             {"-scrypt"},
		"scrypt, one mebi":   {"-scrypt", "-scrypt_N", "1024", "-scrypt_r", "8", "-scrypt_p", "2"},
		"an empty word":      {"-v2", "aes-256-cbc"},
		"unsupported cipher": {"-v2", "camellia-256-cbc"},
		"unsupported scheme": {"-v1", "PBE-SHA1-3DES"},
		"too many rounds":    {"-v2", "aes-256-cbc", "-iter", "2000001"},
		"too much memory":    {"-scrypt", "-scrypt_N", "16", "-scrypt_r", "65", "-scrypt_p", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			word := "a passphrase"
			if name == "an empty word" {
				word = ""
			}
			locked := openssl(t, plain, append([]string{"pkcs8", "-topk8", "-passout", "pass:" + word}, args...)...)
			switch {
			case strings.HasPrefix(name, "unsupported"):
				wantLocked(t, locked, word, sshexec.KeyUnsupported)
			case strings.HasPrefix(name, "too"):
				wantLocked(t, locked, word, sshexec.KeyCostly)
			default:
				wantUnlock(t, locked, word, public)
				wantLocked(t, locked, "other", sshexec.KeyPassphrase)
			}
		})
	}
}

// A file that asks for work without end is refused before any is done.
func TestS13_RoundsAreBounded(t *testing.T) {
	_, private, _ := keygen(t, "-t", "ed25519", "-N", "word", "-a", "1")
	for rounds, want := range map[uint32]sshexec.KeyReason{
		0: sshexec.KeyDamaged, 1001: sshexec.KeyCostly, 1 << 31: sshexec.KeyCostly, 2: sshexec.KeyPassphrase,
	} {
		wantLocked(t, withRounds(t, private, rounds), "word", want)
	}
}

// withRounds is the key with another number of rounds in its header.
func withRounds(t testing.TB, private []byte, rounds uint32) []byte {
	t.Helper()
	block, _ := pem.Decode(private)
	i := bytes.Index(block.Bytes, []byte("bcrypt"))
	if i < 0 {
		t.Fatal("no bcrypt in the key")
	}
	// 'bcrypt', the length of the options, a salt of 16 bytes with its length
	binary.BigEndian.PutUint32(block.Bytes[i+6+4+4+16:], rounds)
	return pem.EncodeToMemory(block)
}

// Whatever byte is wrong, the answer is one of the reasons, and never a key
// that is not the one in the file.
func TestS13_EveryDamagedByteIsNoticed(t *testing.T) {
	for _, options := range [][]string{{"-t", "ed25519", "-a", "1", "-Z", "aes256-ctr"}, {"-t", "ed25519", "-a", "1", "-Z", "aes256-gcm@openssh.com"}, {"-t", "ecdsa", "-m", "PKCS8"}} {
		t.Run(options[len(options)-1], func(t *testing.T) {
			t.Parallel()
			_, private, public := keygen(t, append([]string{"-C", "", "-N", "a word"}, options...)...)
			block, _ := pem.Decode(private)
			step := 37
			if block.Type == "ENCRYPTED PRIVATE KEY" {
				step = 3 // it is quick, and nothing authenticates it
			}
			for i := 0; i < len(block.Bytes); i += step {
				changed := *block
				changed.Bytes = bytes.Clone(block.Bytes)
				changed.Bytes[i] ^= 0x10
				plain, err := sshexec.UnlockKey(pem.EncodeToMemory(&changed), []byte("a word"))
				var e *sshexec.KeyError
				switch {
				case err == nil && publicLine(parseKey(t, plain).PublicKey()) != strings.TrimSpace(public):
					t.Fatalf("byte %d: another key came out", i)
				case err != nil && !errors.As(err, &e):
					t.Fatalf("byte %d: %v (%T)", i, err, err)
				}
			}
			for i := 0; i < len(private); i += 71 {
				if plain, err := sshexec.UnlockKey(private[:i], []byte("a word")); err == nil {
					t.Fatalf("cut at %d: %d bytes of key", i, len(plain))
				}
			}
		})
	}
}

func TestUnlockKeyLeavesOtherErrorsAsTheyAre(t *testing.T) {
	_, private, public := keygen(t, "-t", "ed25519", "-N", "")
	wantUnlock(t, private, "needless", public)
	wantLocked(t, []byte(public), "word", sshexec.KeyPublic)
	wantLocked(t, nil, "word", sshexec.KeyEmpty)
	wantLocked(t, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\n"), "word", sshexec.KeyDamaged)
}

// Nothing that was decrypted comes to lie in a file.
func TestS13_NothingDecryptedComesToLieInAFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("HOME", dir)
	for _, options := range [][]string{{"-t", "ed25519", "-a", "1"}, {"-t", "ecdsa", "-m", "PKCS8"}, {"-t", "ecdsa", "-m", "PEM"}} {
		_, private, public := keygen(t, append([]string{"-N", "a word"}, options...)...)
		plain, err := sshexec.UnlockKey(private, []byte("a word"))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(plain)
		seed := block.Bytes[len(block.Bytes)-40 : len(block.Bytes)-10]
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content := read(t, path)
			if bytes.Contains(content, seed) || bytes.Contains(content, []byte(base64.StdEncoding.EncodeToString(seed))) {
				t.Errorf("%s has the decrypted key of %s", path, public)
			}
			return nil
		})
	}
}

func BenchmarkRounds(b *testing.B) {
	_, private, _ := keygen(b, "-t", "ed25519", "-N", "word", "-a", "100")
	for b.Loop() {
		if _, err := sshexec.UnlockKey(private, []byte("word")); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzUnlockKey(f *testing.F) {
	for _, options := range [][]string{{"-a", "1"}, {"-m", "PKCS8"}, {"-m", "PEM", "-t", "ecdsa"}} {
		_, private, _ := keygen(f, append([]string{"-t", "ed25519", "-C", "", "-N", "a word"}, options...)...)
		f.Add(private, []byte("a word"))
	}
	f.Fuzz(func(t *testing.T, secret, passphrase []byte) {
		plain, err := sshexec.UnlockKey(secret, passphrase)
		var e *sshexec.KeyError
		if err != nil && !errors.As(err, &e) || (err == nil) == (plain == nil) {
			t.Fatalf("%d bytes, %v (%T)", len(plain), err, err)
		}
		if err == nil {
			parseKey(t, plain)
		}
	})
}
