package ledger

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A head of the tree is a C2SP checkpoint in a C2SP signed note:
//
//	yett-ledger-HEX   origin and name of the key; HEX is of its first 8 bytes
//	8841              rows
//	BASE64            RFC 6962 root over them
//	vault 7           generation of the vault's file when it was signed
//
//	— yett-ledger-HEX BASE64   Ed25519
//
// The key comes from the vault, so only an unlocked broker signs. Whoever has
// the verifier key checks heads and proofs without anything of Yett.

const (
	originPrefix = "yett-ledger-"
	vaultLine    = "vault "
	// HeadFile and KeyFile lie beside ledger.db: the newest head, and the
	// verifier key, which is a convenience and not to be trusted as it lies.
	HeadFile = "ledger.head"
	KeyFile  = "ledger.pub"
	maxHead  = 4096
)

// ErrHead is wrapped by errors about what is no head of this ledger.
var ErrHead = errors.New("not a signed head of this ledger")

// ErrKeyGone is returned where a head would be signed after Wipe.
var ErrKeyGone = errors.New("the log's key is not held any more")

// Checkpoint is what a head says.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
	Vault  uint64 // generation of the vault
}

func (c Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n%s%d\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]), vaultLine, c.Vault)
}

func parseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || lines[4] != "" {
		return c, fmt.Errorf("%w: it does not have four lines", ErrHead)
	}
	c.Origin = lines[0]
	c.Size, err = strconv.ParseInt(lines[1], 10, 64)
	root, rootErr := base64.StdEncoding.DecodeString(lines[2])
	copy(c.Root[:], root)
	generation, ok := strings.CutPrefix(lines[3], vaultLine)
	var numberErr error
	c.Vault, numberErr = strconv.ParseUint(generation, 10, 64)
	if errors.Join(err, rootErr, numberErr) != nil || !ok || c.Size < 0 || c.text() != text {
		return Checkpoint{}, fmt.Errorf("%w: its text is not a checkpoint", ErrHead)
	}
	return c, nil
}

// OpenCheckpoint opens a signed head with a verifier key.
func OpenCheckpoint(head []byte, verifierKey string) (Checkpoint, error) {
	v, err := note.NewVerifier(strings.TrimSpace(verifierKey))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("reading the log's key: %w", err)
	}
	n, err := note.Open(head, note.VerifierList(v))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrHead, err)
	}
	c, err := parseCheckpoint(n.Text)
	if err == nil && c.Origin != v.Name() {
		err = fmt.Errorf("%w: it is of %q", ErrHead, c.Origin)
	}
	return c, err
}

// readCheckpoint reads a head without the key: what it says is to be checked.
func readCheckpoint(head []byte) (Checkpoint, error) {
	text, _, ok := strings.Cut(string(head), "\n\n")
	if !ok {
		return Checkpoint{}, fmt.Errorf("%w: it is no note", ErrHead)
	}
	return parseCheckpoint(text + "\n")
}

// HeadKeyPurpose is what a vault derives the seed of a LogKey for.
const HeadKeyPurpose = "ledger head key v1"

// LogKey signs heads. It makes a note.Signer.
type LogKey struct {
	verifier note.Verifier
	text     string

	mu      sync.Mutex
	private ed25519.PrivateKey // nil after Wipe
}

// NewLogKey makes the key from 32 secret bytes, which the caller still owns.
func NewLogKey(seed []byte) (*LogKey, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, errors.New("the seed of the log's key has another length")
	}
	k := &LogKey{private: ed25519.NewKeyFromSeed(seed)}
	public := k.private.Public().(ed25519.PublicKey)
	var err error
	if k.text, err = note.NewEd25519VerifierKey(originPrefix+hex.EncodeToString(public[:8]), public); err == nil {
		k.verifier, err = note.NewVerifier(k.text)
	}
	if err != nil {
		return nil, fmt.Errorf("making the log's key: %w", err)
	}
	return k, nil
}

// VerifierKey is what others check heads with, in the form of C2SP signed notes.
func (k *LogKey) VerifierKey() string { return k.text }

// Name, KeyHash and Sign are for note.Sign.
func (k *LogKey) Name() string    { return k.verifier.Name() }
func (k *LogKey) KeyHash() uint32 { return k.verifier.KeyHash() }
func (k *LogKey) Sign(msg []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.private == nil {
		return nil, ErrKeyGone
	}
	return ed25519.Sign(k.private, msg), nil
}

// Wipe forgets the private key.
func (k *LogKey) Wipe() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.private)
	k.private = nil
}

func (k *LogKey) seal(c Checkpoint) ([]byte, error) {
	c.Origin = k.Name()
	head, err := note.Sign(&note.Note{Text: c.text()}, k)
	if err != nil {
		return nil, fmt.Errorf("signing head: %w", err)
	}
	return head, nil
}
