package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/wire"
)

func newSSHKeygen(a *app) *cobra.Command {
	request := wire.KeyGenerate{}
	c := &cobra.Command{
		Use: "keygen NAME", Short: "Make a private key that never leaves the vault", Args: cobra.ExactArgs(1),
		Long: "Has the broker make a key for a declared credential of kind ssh-key, with your proof. The\n" +
			"private part is made and sealed in the broker and never leaves it; the public part is\n" +
			"printed, a line for authorized_keys of the account on the host.",
		RunE: func(c *cobra.Command, args []string) error {
			request.Name = args[0]
			return a.keygen(c.Context(), wire.MethodKeyGenerate, args[0], request)
		},
	}
	c.Flags().StringVar(&request.Type, "type", sshexec.KindED25519, "the `KIND` of key: ed25519, or ecdsa or rsa for hosts that know nothing newer")
	c.Flags().BoolVar(&request.Rotate, "rotate", false, "replace the key that is there")
	return c
}

func newSSHPublic(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "public NAME", Short: "Print the public part of a stored key", Args: cobra.ExactArgs(1),
		Long: "Prints the line for authorized_keys of a key in the vault. It takes your proof, as\neverything does that is read from there.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.keygen(c.Context(), wire.MethodKeyPublic, args[0], wire.SecretName{Name: args[0]})
		},
	}
}

func (a *app) keygen(ctx context.Context, method, name string, request any) error {
	var key wire.KeyPublic
	err := a.manageProven(ctx, method, request, &key)
	if r, ok := request.(wire.KeyGenerate); ok && !r.Rotate {
		err = keyIsThere(name, err)
	}
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, map[string]any{"name": name, "public_key": key.PublicKey, "fingerprint": key.Fingerprint})
	}
	a.note("%s: %s. This line lets it in at a host, in authorized_keys of the account there:", name, key.Fingerprint)
	fmt.Fprintln(a.stdout, key.PublicKey)
	return nil
}

// keyIsThere says how a key that is there is replaced by one that the broker
// makes. The broker's own advice is for values that a person gives.
func keyIsThere(name string, err error) error {
	var fail *wire.Error
	if !errors.As(err, &fail) || !strings.Contains(fail.NextStep, "secret rotate") {
		return err
	}
	e := *fail
	e.NextStep = "Its public part: yett ssh public " + printable(name) + ". A new key in its place: yett ssh keygen " + printable(name) + " --rotate."
	return &e
}
