package wire

// MethodHostKeys asks a host that declared hosts lead to for the keys that it
// shows. It needs the person's proof: the keys of these hosts sign for it.
const MethodHostKeys = "host.keys"

// HostKeys is what is asked, and which way leads there.
type HostKeys struct {
	Address string   `json:"address"` // host, or host:port
	Jump    []string `json:"jump"`    // names of declared hosts, as in the access file
}

// ShownKeys are the keys that a host showed, each 'type base64'.
type ShownKeys struct {
	Keys []string `json:"keys"`
}

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
