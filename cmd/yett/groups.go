package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// groups are the headings under which yett --help lists the commands. One that
// stands under none comes last.
var groups = []struct {
	title    string
	commands []string
}{
	{"First steps:", []string{"up", "add", "connect", "try"}},
	{"When an agent asks:", []string{"pending", "approve", "deny", "console", "passkey", "touch-id", "unlock"}},
	{"Taking access back:", []string{"sessions", "revoke", "lock", "stop"}},
	{"What may be asked for, and with which values:", []string{"access", "apply", "secret", "ssh", "adopt", "vault"}},
	{"What was done, and how things are:", []string{"activity", "status", "doctor", "review", "operation", "audit", "receipt"}},
}

func inGroups(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(g.commands, c.Name()) {
				c.GroupID = g.title
			}
		}
	}
}

// parent is a command that only has others below it.
func parent(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(below...)
	return c
}
