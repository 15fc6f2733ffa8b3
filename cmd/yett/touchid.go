package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/loginkeys"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newTouchID(a *app) *cobra.Command {
	c := &cobra.Command{Use: "touch-id", Short: "Approve with the finger on this Mac: add or remove its key", Args: cobra.NoArgs,
		Long: "With a key of this Mac a card is approved by the finger: yett approve ID --touch-id. The key\n" +
			"lies in the login keychain, and Yett asks for the finger before it uses it; what reads the\n" +
			"item in another way is not asked. So it approves and opens reading, and nothing else.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(&cobra.Command{
		Use:   "add NAME",
		Short: "Make a key for this Mac, with your passphrase",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.addTouchID(c.Context(), args[0]) },
	}, &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a key back, and remove it from the keychain of this Mac",
		Long:  "From then on the key approves nothing. What it approved stays, and can still be checked.",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.removeTouchID(c.Context(), args[0]) },
	})
	return c
}

// addTouchID asks for the finger once, so that nobody adds a key that this Mac
// cannot use, and keeps the key in the keychain before the broker knows it. A
// crash in between leaves an item that approves nothing.
func (a *app) addTouchID(ctx context.Context, name string) error {
	store, err := a.touchStore()
	if err != nil {
		return err
	}
	loc, err := a.location()
	if err != nil {
		return err
	}
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	seed := make([]byte, approval.SeedSize)
	defer clear(seed)
	rand.Read(seed) // never fails: the program ends instead
	err = store.AddSeed(ctx, loc.Home, seed)
	if errors.Is(err, loginkeys.ErrItemThere) {
		return wire.Errorf(wire.CodeBadRequest, "The keychain has a Touch ID key for this home already.").
			Then("Take it back first: yett touch-id remove NAME. The names are in yett passkey list.")
	}
	if err != nil {
		return loginFailed(err)
	}
	added, err := a.enrolTouchID(ctx, conn, store, loc.Home, name)
	if err != nil {
		return errors.Join(err, store.RemoveSeed(context.WithoutCancel(ctx), loc.Home, func([]byte) bool { return true }))
	}
	return a.result(added, "Added. Approve with it: %s.\nIts public key has the SHA-256 %s.", a.here("yett approve ID --touch-id"), added.Fingerprint)
}

func (a *app) enrolTouchID(ctx context.Context, conn *client.Conn, store loginkeys.Store, home, name string) (added wire.Passkey, err error) {
	err = a.proveAnew(ctx, conn, wire.MethodTouchIDAdd, func(nonce string) (any, error) {
		add := wire.TouchIDAdd{Name: name}
		err := store.UseSeed(ctx, home, "add a key to Yett that approves", func(seed []byte) error {
			k, signature, err := approval.SignTouchID(seed, approval.EnrolTouchIDMessage(name, nonce))
			add.PublicKey, add.Signature = k.Ed25519(), signature
			return err
		})
		return add, loginFailed(err)
	}, &added)
	return added, err
}

// removeTouchID takes the key back, and the item of this Mac if it is that key's.
func (a *app) removeTouchID(ctx context.Context, name string) error {
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.openReading(ctx, conn); err != nil {
		return err
	}
	var l wire.List[wire.Passkey]
	if err := call(ctx, conn, wire.MethodPasskeyList, wire.Empty{}, nil, &l); err != nil {
		return err
	}
	fingerprint := ""
	for _, k := range l.Items {
		if k.Kind == wire.KindTouchID && k.Name == name {
			fingerprint = k.Fingerprint
		}
	}
	if fingerprint == "" {
		return wire.Errorf(wire.CodeBadRequest, "There is no such Touch ID key.").
			Then("List them: yett passkey list.")
	}
	if err := a.prove(ctx, conn, wire.MethodPasskeyRemove, wire.PasskeyName{Name: name}, nil); err != nil {
		return err
	}
	left := a.removeSeed(ctx, fingerprint)
	if a.json {
		return printJSON(a.stdout, map[string]any{"name": name, "removed": true, "key_removed": left == nil})
	}
	fmt.Fprintln(a.stdout, "Removed. It approves nothing any more.")
	if left != nil {
		a.note("The key itself stays in the keychain that it was made in (%s).", printable(left.Error()))
	}
	return nil
}

func (a *app) removeSeed(ctx context.Context, fingerprint string) error {
	store, err := a.touchStore()
	if err != nil {
		return err
	}
	loc, err := a.location()
	if err != nil {
		return err
	}
	return store.RemoveSeed(ctx, loc.Home, func(seed []byte) bool {
		k, _, err := approval.SignTouchID(seed, nil)
		return err == nil && k.Fingerprint() == fingerprint
	})
}

// proveAnew makes a request that depends on the nonce of its proof.
func (a *app) proveAnew(ctx context.Context, conn *client.Conn, method string, request func(nonce string) (any, error), result any) error {
	return a.withKeys(ctx, conn, func(_ string, keys *vault.Keys, nonce string) error {
		r, err := request(nonce)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
		mac := vault.Proof(keys.Approval, approval.ProofMessage(method, raw, nonce))
		return callRaw(ctx, conn, method, raw, &wire.Proof{Nonce: nonce, MAC: mac}, result)
	})
}

// touched makes the proof of a message by the finger. The reason stands in the
// system's prompt.
func (a *app) touched(ctx context.Context, conn *client.Conn, reason string, message func(nonce string) []byte) (*wire.Proof, error) {
	store, err := a.touchStore()
	if err != nil {
		return nil, err
	}
	loc, err := a.location()
	if err != nil {
		return nil, err
	}
	var c wire.Challenge
	if err := call(ctx, conn, wire.MethodVaultChallenge, wire.Empty{}, nil, &c); err != nil {
		return nil, err
	}
	proof := &wire.Proof{Nonce: c.Nonce}
	err = store.UseSeed(ctx, loc.Home, reason, func(seed []byte) error {
		k, signature, err := approval.SignTouchID(seed, message(c.Nonce))
		proof.TouchID = &wire.TouchIDSignature{KeyID: k.ID, Signature: signature}
		return err
	})
	if errors.Is(err, loginkeys.ErrNoItem) {
		return nil, wire.Errorf(wire.CodeProofRequired, "This Mac has no Touch ID key of Yett.").
			Then("Make one, with the passphrase: yett touch-id add NAME.")
	}
	return proof, loginFailed(err)
}

// approveByTouch approves a card by the finger. The prompt names the card by its
// two words, which follow from its id.
func (a *app) approveByTouch(ctx context.Context, conn *client.Conn, request wire.Approve) error {
	how := "once"
	if !request.Until.IsZero() {
		how = "until " + request.Until.Local().Format("15:04")
	}
	reason := "approve the card " + strings.ToUpper(approval.Tag(request.ApprovalID)) + " " + how
	proof, err := a.touched(ctx, conn, reason, func(nonce string) []byte {
		return approval.DecisionMessage(request.CardDigest, request.Choice, request.Until, nonce)
	})
	if err != nil {
		return err
	}
	return call(ctx, conn, wire.MethodApprovalApprove, request, proof, nil)
}

// readByTouch opens reading by the finger.
func (a *app) readByTouch(ctx context.Context, conn *client.Conn) error {
	raw, err := json.Marshal(wire.Empty{})
	if err != nil {
		return err
	}
	proof, err := a.touched(ctx, conn, "show the cards that wait", func(nonce string) []byte {
		return approval.ProofMessage(wire.MethodActivityRead, raw, nonce)
	})
	if err != nil {
		return err
	}
	return callRaw(ctx, conn, wire.MethodActivityRead, raw, proof, nil)
}
