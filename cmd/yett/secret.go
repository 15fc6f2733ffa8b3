package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

func newSecret(a *app) *cobra.Command {
	value := func(use, short, method string) *cobra.Command {
		keyPassphrase := -1
		c := &cobra.Command{
			Use: use + " NAME...", Short: short, Args: cobra.MinimumNArgs(1),
			Long: short + ".\nThe value is read from the terminal without echo, or from standard input. One\nnewline at its end is dropped. It is never shown again. A private key that has a\npassphrase is opened in memory first. On a terminal several credentials can be named:\nYett's own passphrase is then asked for once.",
			RunE: func(c *cobra.Command, args []string) error {
				return a.setSecrets(c.Context(), method, args, keyPassphrase)
			},
		}
		c.Flags().IntVar(&keyPassphrase, "key-passphrase-fd", -1, "read the passphrase of an encrypted private key, one line, from file descriptor `N`")
		return c
	}
	return parent("secret", "Give, replace, remove and list the values of credentials",
		value("set", "Give a declared credential its value", wire.MethodSecretSet),
		value("rotate", "Replace the value of a credential", wire.MethodSecretRotate),
		&cobra.Command{Use: "remove NAME", Short: "Forget the value of a credential", Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error { return a.removeSecret(c.Context(), args[0]) }},
		&cobra.Command{Use: "list", Short: "List the declared credentials, never their values", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return a.listSecrets(c.Context()) }},
	)
}

// maxSecret is the longest value in bytes.
const maxSecret = 64 << 10

func (a *app) setSecrets(ctx context.Context, method string, names []string, keyPassphrase int) error {
	if len(names) > 1 && !term.IsTerminal(int(a.stdin.Fd())) {
		return usageError{errors.New("standard input holds one value: name one credential")}
	}
	if err := a.ownDescriptors(map[string]int{"key-passphrase-fd": keyPassphrase}); err != nil {
		return err
	}
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.mayTake(ctx, conn, method, names); err != nil {
		return err
	}
	for _, name := range names {
		if err := a.setSecret(ctx, conn, method, name, keyPassphrase); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) setSecret(ctx context.Context, conn *client.Conn, method, name string, keyPassphrase int) error {
	value, err := a.readSecret(ctx, name)
	if err != nil {
		return err
	}
	if isEncryptedKey(value) {
		if value, err = a.openKey(ctx, name, value, keyPassphrase); err != nil {
			return badKey(name, err)
		}
	}
	defer clear(value)
	if err := vault.CheckValue(access.KindSSHKey, value); err != nil { // what holds for every kind
		return wire.Errorf(wire.CodeBadRequest, "The value cannot be used: %v; nothing was changed.", err).
			Then("Check that the whole value was given.")
	}
	if err := a.prove(ctx, conn, method, wire.SecretSet{Name: name, Value: value}, nil); err != nil {
		return err
	}
	return a.result(map[string]any{"name": name, "set": true}, "%s has its value.", name)
}

// mayTake refuses what would be refused anyway, before anything is typed. The
// broker tells without a proof which credentials have no value yet.
func (a *app) mayTake(ctx context.Context, conn *client.Conn, method string, names []string) error {
	var r wire.AccessApplied
	if err := call(ctx, conn, wire.MethodAccessApply, wire.AccessApply{DryRun: true, Add: true}, nil, &r); err != nil {
		return err
	}
	for _, name := range names {
		missing := slices.Contains(r.Missing, name)
		switch {
		case missing && method == wire.MethodSecretRotate:
			return wire.Errorf(wire.CodeBadRequest, "%s has no value yet.", printable(name)).
				Then("Give it one: yett secret set " + printable(name) + ".")
		case !missing && method == wire.MethodSecretSet:
			return wire.Errorf(wire.CodeBadRequest, "%s waits for no value: it has one already, or is not declared.", printable(name)).
				Then("See what is declared: yett secret list. Another value: yett secret rotate " + printable(name) + ".")
		}
	}
	return nil
}

func (a *app) readSecret(ctx context.Context, name string) ([]byte, error) {
	if term.IsTerminal(int(a.stdin.Fd())) {
		return askHidden(ctx, "Value of "+name+": ")
	}
	return readBounded(a.stdin)
}

func (a *app) removeSecret(ctx context.Context, name string) error {
	if err := a.manageProven(ctx, wire.MethodSecretRemove, wire.SecretName{Name: name}, nil); err != nil {
		return err
	}
	return a.result(map[string]any{"name": name, "set": false}, "%s has no value any more.", name)
}

func (a *app) listSecrets(ctx context.Context) error {
	l, err := readList[wire.Secret](ctx, a, wire.MethodSecretList)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.stdout, l.Items)
	}
	if len(l.Items)+l.Hidden == 0 && !a.locked {
		a.note("No credential is declared: yett add PRESET, or yett apply FILE.")
	}
	w := aligned(a.stdout)
	for _, s := range l.Items {
		set := "no value yet"
		if s.SetAt != nil {
			set = "set " + s.SetAt.Local().Format("2006-01-02 15:04")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Kind, s.Place, set)
	}
	w.Flush()
	a.hidden(l.Hidden, "credentials")
	return nil
}

// hidden tells that there is more, and what would show it. what is a plural.
func (a *app) hidden(n int, what string) {
	if n == 0 {
		return
	}
	are := "are"
	if n == 1 {
		are = "is"
	}
	told := fmt.Sprintf("%s %s not shown", screen.HowMany(n, strings.TrimSuffix(what, "s")), are)
	if a.locked {
		a.note("%s: the broker is locked. next: yett unlock", told)
		return
	}
	a.note("%s without the passphrase (run it in a terminal, or give --passphrase-fd)", told)
}
