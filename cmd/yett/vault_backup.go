package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newVaultBackup(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the sealed vault to a new file",
		Long: "Copies the sealed vault to a new file, readable by you alone. It opens with the\n" +
			"passphrase and the recovery code that are valid now, also after you change them.\n" +
			"The ledger is not in it.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.backupVault(c.Context(), args[0]) },
	}
}

func (a *app) backupVault(ctx context.Context, path string) error {
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var image []byte
	var part wire.VaultImage
	for {
		request := wire.VaultBackup{Generation: part.Generation, Offset: len(image)}
		if err := a.prove(ctx, conn, wire.MethodVaultBackup, request, &part); err != nil {
			return err
		}
		image = append(image, part.Part...)
		if len(image) >= part.Size || len(part.Part) == 0 {
			break
		}
		a.note("%d of %d KiB", len(image)>>10, part.Size>>10)
	}
	if err := vault.WriteBackup(path, image); err != nil {
		return backupFailed(path, err)
	}
	sum := sha256.Sum256(image)
	return a.result(map[string]any{"file": path, "generation": part.Generation, "bytes": len(image), "sha256": hex.EncodeToString(sum[:])}, "%s: generation %d, %d bytes, sha256 %x", printable(path), part.Generation, len(image), sum)
}

func backupFailed(path string, err error) error {
	e := wire.Errorf(wire.CodeBadRequest, "The backup was not made: %s.", printable(err.Error()))
	switch {
	case errors.Is(err, fs.ErrExist):
		e.Message = printable(path) + " is there already; it was left as it is."
		e.NextStep = "Give the name of a new file."
	case errors.Is(err, fs.ErrNotExist):
		e.NextStep = "Make the directory " + printable(filepath.Dir(path)) + " first."
	default:
		e.NextStep = "Give a place that you may write to and that has room."
	}
	return e
}

// printable is text from outside that may be printed on a terminal.
func printable(s string) string { return approval.Escape(s, 1000) }
