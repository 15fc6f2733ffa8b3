package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// backupPart keeps an answer within one frame, in base64.
const backupPart = 512 << 10

// backup hands out the sealed vault, part by part. It is ciphertext and opens
// with what opens the vault; that somebody took it is a row all the same.
func (o *operator) backup(r wire.VaultBackup) (any, *wire.Error) {
	image, generation := o.b.Vault.Snapshot()
	if r.Offset < 0 || r.Offset > len(image) || r.Generation == 0 && r.Offset != 0 {
		return nil, wire.Errorf(wire.CodeBadRequest, "There is no such part of the vault.")
	}
	if r.Generation != 0 && r.Generation != generation {
		return nil, wire.Errorf(wire.CodeBadRequest, "The vault was changed while it was copied.").
			Then("Make the backup again.")
	}
	if r.Generation == 0 {
		sum := sha256.Sum256(image)
		if fail := o.row("vault.backup", map[string]any{"generation": generation, "bytes": len(image), "sha256": hex.EncodeToString(sum[:])}, nil); fail != nil {
			return nil, fail
		}
	}
	return wire.VaultImage{Generation: generation, Size: len(image), Part: image[r.Offset:min(len(image), r.Offset+backupPart)]}, nil
}

// recordNotes makes rows of what was done to the vault's file while nobody
// could record it, and of an older file in its place. The person who unlocks is
// told the same.
func (o *operator) recordNotes() (told []string, fail *wire.Error) {
	v := o.b.Vault
	notes, err := v.Unrecorded()
	if err != nil {
		return nil, o.vaultFailed("reading the vault's notes", err)
	}
	for _, n := range notes {
		if fail := o.row(n.Kind, map[string]any{"at": n.At, "backup_generation": n.Backup, "replaced_generation": n.Replaced, "older": n.Older()}, nil); fail != nil {
			return nil, fail
		}
		told = append(told, describe(n))
	}
	if older, previous := v.RolledBack(); older {
		if fail := o.row("vault.rolled_back", map[string]any{"generation": v.Generation(), "previous_generation": previous}, nil); fail != nil {
			return nil, fail
		}
		told = append(told, fmt.Sprintf("The vault's file is of generation %d, and generation %d lies beside it: an older file was put in its place.", v.Generation(), previous))
	}
	if len(notes) > 0 { // after the rows: a crash in between records them twice
		if err := v.Recorded(notes); err != nil {
			o.b.Log.Error("forgetting the vault's notes: they will be recorded again", "error", err)
		}
	}
	return told, nil
}

func describe(n vault.Note) string {
	at := n.At.Local().Format("2006-01-02 15:04")
	if n.Older() {
		return fmt.Sprintf("On %s a backup of generation %d replaced generation %d of the vault: what had changed in between is lost.", at, n.Backup, n.Replaced)
	}
	return fmt.Sprintf("On %s the vault was restored from a backup of generation %d.", at, n.Backup)
}
