package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/wire"
)

func newApply(a *app) *cobra.Command {
	dry := false
	c := &cobra.Command{
		Use:   "apply FILE",
		Short: "Apply an access file, after showing what it changes",
		Long:  "Checks the access file, shows the difference to what is applied, and applies it with\nyour proof. The file holds no secret; the broker keeps what was applied.",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.apply(c.Context(), args[0], dry) },
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show the difference and apply nothing")
	return c
}

// maxAccessFile is more than an access file may have: the parser says so.
const maxAccessFile = 2 << 20

func (a *app) apply(ctx context.Context, path string, dry bool) error {
	text, err := readInput(path, maxAccessFile)
	if err != nil {
		return err
	}
	policy, err := access.Parse(text)
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "%s has problems:\n%v", path, err).
			Then("Correct these lines and apply it again; nothing was changed.")
	}
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var r wire.AccessApplied
	request := wire.AccessApply{File: string(text), DryRun: true}
	if err := call(ctx, conn, wire.MethodAccessApply, request, nil, &r); err != nil {
		return err
	}
	if !a.json {
		fmt.Fprint(a.stdout, r.Difference)
	}
	changes := r.Difference != ""
	if changes && !dry {
		request.DryRun = false
		if err := a.prove(ctx, conn, wire.MethodAccessApply, request, &r); err != nil {
			return err
		}
	}
	r.Warnings = withKeygen(policy, r.Warnings)
	if a.json {
		return printJSON(a.stdout, map[string]any{"applied": changes && !dry, "difference": r.Difference, "warnings": r.Warnings, "voided": r.Voided})
	}
	voided := "voided"
	if dry {
		voided = "would be voided"
	}
	for _, name := range r.Voided {
		if !strings.Contains(r.Difference, "! the value of "+name+" is lost") { // else it was said
			fmt.Fprintf(a.stdout, "%s: %s\n", voided, name)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(a.stdout, "warning: %s\n", w)
	}
	switch {
	case !changes:
		fmt.Fprintln(a.stdout, "Nothing changes.")
	case dry:
		fmt.Fprintln(a.stdout, "Nothing was applied: this is what it would change.")
	default:
		fmt.Fprintln(a.stdout, "Applied.")
	}
	return nil
}

// withKeygen names, for a key without a value, the way on which nobody ever has
// the key.
func withKeygen(policy *access.Policy, warnings []string) []string {
	for i, w := range warnings {
		_, name, ok := strings.Cut(w, ": yett secret set ")
		if c, declared := policy.Credential(name); ok && declared && c.Kind == access.KindSSHKey {
			warnings[i] += ", or yett ssh keygen " + name + " makes one"
		}
	}
	return warnings
}
