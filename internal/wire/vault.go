package wire

// Methods of the vault's own care.
const (
	MethodVaultSetSlot   = "vault.set_slot"     // another passphrase, or another recovery code
	MethodKeychainSet    = "vault.set_keychain" // adds the keychain slot, or gives it another share
	MethodKeychainRemove = "vault.remove_keychain"
	MethodVaultBackup    = "vault.backup"
)

// KeychainSet gives the keychain slot the key of a share: its salt, and the unlock
// key that share and salt make. The share itself is not sent.
type KeychainSet struct {
	Salt      []byte `json:"salt"`
	UnlockKey []byte `json:"unlock_key"`
}

// SlotSet gives a slot other keys. The passphrase or code that they were
// derived from is never sent.
type SlotSet struct {
	Slot        ChallengeSlot `json:"slot"`
	UnlockKey   []byte        `json:"unlock_key"`
	ApprovalKey []byte        `json:"approval_key"`
}

// SlotWasSet answers vault.set_slot.
type SlotWasSet struct {
	Generation uint64 `json:"generation"`
	Warning    string `json:"warning"` // what could not be done besides, empty if all was
}

// VaultBackup asks for a part of the sealed vault, from an offset on. The first
// part is of whatever generation there is (0), the others are of the same.
type VaultBackup struct {
	Generation uint64 `json:"generation"`
	Offset     int    `json:"offset"`
}

// VaultImage is a part of the sealed vault.
type VaultImage struct {
	Generation uint64 `json:"generation"`
	Size       int    `json:"size"` // of the whole
	Part       []byte `json:"part"`
}
