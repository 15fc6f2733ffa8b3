package main

import "github.com/spf13/cobra"

// newHelp replaces cobra's own command, which prints the help of all and exits
// with 0 where a command is asked for that there is not.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Help about any command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, words []string) error {
			about, rest, err := root.Find(words)
			if err != nil || len(rest) > 0 {
				return noCommand(about, words[len(words)-len(rest)])
			}
			return about.Help()
		},
	}
}
