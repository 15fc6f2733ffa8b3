package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// completionTime bounds a question to the broker while a person waits for the
// shell to complete a word.
const completionTime = 2 * time.Second

func newCompletion(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell: bash, zsh or fish",
		Long: "Prints the script by which a shell completes the words of yett. Packages install it. Else:\n\n" +
			"  bash:  yett completion bash > ~/.local/share/bash-completion/completions/yett\n" +
			"  zsh:   yett completion zsh > DIR/_yett, with DIR in fpath\n" +
			"  fish:  yett completion fish > ~/.config/fish/completions/yett.fish",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return c.Root().GenZshCompletion(a.stdout)
			}
			return c.Root().GenFishCompletion(a.stdout, true)
		},
	}
	return c
}

// completeWords says what the words of commands and flags can be. Names of
// files are offered where a file is meant and nowhere else; ids of the broker
// where it tells them without a proof, which completing never gives.
func (a *app) completeWords(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for path, complete := range map[string]cobra.CompletionFunc{
		"apply":   once(cobra.FixedCompletions([]cobra.Completion{"toml"}, cobra.ShellCompDirectiveFilterFileExt)),
		"approve": once(a.completeCards),
		"deny":    once(a.completeCards),
		"pending": once(a.completeCards),
	} {
		if c, _, err := root.Find(strings.Fields(path)); err == nil && c.CommandPath() == "yett "+path {
			c.ValidArgsFunction = complete
		}
	}
	completeFileNames(root)
	for command, flags := range map[*cobra.Command]map[string]cobra.CompletionFunc{
		root: {"home": cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)},
		named(root, "approve"): {"for": cobra.FixedCompletions(
			[]cobra.Completion{"15m", "1h", "8h"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder)},
	} {
		for flag, complete := range flags {
			if err := command.RegisterFlagCompletionFunc(flag, complete); err != nil {
				panic(err) // a flag of that name is not there, whatever the words are
			}
		}
	}
}

// completeFileNames offers names of files for the arguments and flags whose form
// says that they are one.
func completeFileNames(c *cobra.Command) {
	required, _ := argumentNames(c)
	if c.ValidArgsFunction == nil && len(required) > 0 && (required[0] == "FILE" || strings.HasSuffix(required[0], "-CHECKPOINT")) {
		c.ValidArgsFunction = once(completeFiles)
	}
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if kind, _ := pflag.UnquoteUsage(f); kind == "FILE" || kind == "KEY" {
			if err := c.RegisterFlagCompletionFunc(f.Name, completeFiles); err != nil {
				panic(err) // it was registered twice
			}
		}
	})
	for _, sub := range c.Commands() {
		completeFileNames(sub)
	}
}

func named(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return root
}

// once completes the first word behind a command, since there is only one.
func once(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(c, args, begun)
	}
}

func completeFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completeCards offers the cards that wait. Without a proof the broker tells
// their ids and the names of the capabilities, and that is enough here. A
// broker that is not there offers nothing and says nothing.
func (a *app) completeCards(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completionTime)
	defer cancel()
	var l wire.List[wire.Approval]
	loc, err := a.location()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	conn, err := client.DialLocation(ctx, loc, client.Options{Program: "yett", Version: version, Role: wire.RoleCLI})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer conn.Close()
	if err := call(ctx, conn, wire.MethodApprovalList, wire.ApprovalList{}, nil, &l); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var cards []cobra.Completion
	for _, p := range l.Items {
		cards = append(cards, cobra.CompletionWithDesc(p.ApprovalID, approval.Printable(strings.Join(p.Capabilities, ", "))))
	}
	return cards, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
