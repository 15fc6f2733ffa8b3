package wire

// Methods for SSH keys. Both need the person's proof; neither returns anything
// but the public part.
const (
	MethodKeyGenerate = "secret.generate" // makes a key in the broker and stores it
	MethodKeyPublic   = "secret.public"   // of a key that is stored
)

// KeyGenerate makes a key for a declared credential of kind ssh-key. A value that
// is there stays, unless it is to be replaced.
type KeyGenerate struct {
	Name   string `json:"name"`
	Type   string `json:"type"` // ed25519, ecdsa or rsa
	Rotate bool   `json:"rotate,omitempty" wire:"optional"`
}

// KeyPublic is the public part of a key.
type KeyPublic struct {
	PublicKey   string `json:"public_key"` // a line for authorized_keys
	Fingerprint string `json:"fingerprint"`
}
