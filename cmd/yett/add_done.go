package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/wire"
)

// addDone is what yett add did.
type addDone struct {
	Preset       string        `json:"preset"`
	Name         string        `json:"name"`
	Difference   string        `json:"difference"`
	Capabilities []wire.Access `json:"capabilities"`
	Test         *tried        `json:"test"` // null: not tried
	PublicKey    string        `json:"public_key,omitempty"`
	Client       clientEntry   `json:"client"`
}

// printAdded says what agents may ask for now and what comes next. A value
// that was refused is a failure of the command, although all was stored.
func (a *app) printAdded(ctx context.Context, conn *client.Conn, d addition, done addDone) error {
	loc, err := a.location()
	if err != nil {
		return err
	}
	done.Client = entryOf(loc)
	var applied wire.AccessListResult
	if err := call(ctx, conn, wire.MethodAccessShow, wire.Empty{}, nil, &applied); err != nil {
		return err
	}
	for _, c := range applied.Capabilities {
		if slices.Contains(d.preset.Capabilities(d.name), c.Capability) {
			done.Capabilities = append(done.Capabilities, c)
		}
	}
	if a.json {
		printJSON(a.stdout, done)
	} else {
		a.printAddedText(d, done)
	}
	if done.Test != nil && !done.Test.OK {
		return wire.Errorf(wire.CodeBadRequest, "%s was added, but trying it failed: %s.", d.name, done.Test.Message).
			Then(done.Test.nextStep)
	}
	if !a.json {
		a.advise("next: let an agent ask for it, then: yett pending")
		if len(a.connected(loc, done.Client)) == 0 {
			a.printClient(loc, done.Client, "      ")
		}
	}
	return nil
}

func (a *app) printAddedText(d addition, done addDone) {
	fmt.Fprintf(a.stdout, "%s is added. Agents may ask for:\n", d.name)
	for _, c := range done.Capabilities {
		how := "a card for each session; a yes is for one action, or for a time"
		if c.Confirm == access.ConfirmEach {
			how = "a card for each action"
		}
		fmt.Fprintf(a.stdout, "  %s  →  %s  (%s)\n", c.Capability, c.Target, how)
	}
	if d.preset.Note != "" {
		fmt.Fprintf(a.stdout, "note: %s\n", d.preset.Note)
	}
	if done.PublicKey != "" {
		fmt.Fprintf(a.stdout, "The new key is let in by this line in authorized_keys of the account on the host:\n  %s\n", done.PublicKey)
	}
	if done.Test != nil && done.Test.OK {
		fmt.Fprintf(a.stdout, "Tried: %s.\n", strings.TrimSuffix(done.Test.Message, "."))
	}
}
