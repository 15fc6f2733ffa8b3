package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/ambient"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/wire"
)

type adoptOptions struct {
	as, origin, host string
	paths            []string
	remove, keep     bool
}

func newAdopt(a *app) *cobra.Command {
	var o adoptOptions
	c := &cobra.Command{
		Use:   "adopt [NAME…]",
		Short: "Find credentials that every program of your login can use, and move them",
		Long: "Without NAME it lists the credentials that lie open in the usual places of your login\n" +
			"and in the project below the current directory: where, of what kind, who can read\n" +
			"them, never a value.\n\n" +
			"With names it moves these: it shows what agents could ask for with each, takes your\n" +
			"proof, stores the value, and asks whether to take it away from where it was. No copy\n" +
			"is kept beside it: that would be the secret again. What backups and the disk keep of\n" +
			"the old file stays, so a new token at the issuer is the better end.",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var words []cobra.Completion
			found, _ := a.ambient(c.Context())
			for _, f := range found {
				if movable(f) && !slices.Contains(args, f.Name) {
					words = append(words, cobra.CompletionWithDesc(f.Name, f.Kind))
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				if c.LocalNonPersistentFlags().NFlag() > 0 {
					return usageError{errors.New("which one? yett adopt lists them")}
				}
				return a.listAmbient(c.Context())
			}
			if err := o.check(args); err != nil {
				return err
			}
			return a.adopt(c.Context(), args, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.as, "as", "", "the `NAME` of the credential in Yett")
	f.StringVar(&o.origin, "origin", "", "the one place the token goes to, https://host[:port], where that is not known")
	f.StringArrayVar(&o.paths, "path", nil, "a `PATH` that agents may ask to read, where no preset says; * is one segment, ** the rest; may be repeated")
	f.StringVar(&o.host, "host", "", "the `USER@HOST[:PORT]` that an SSH key is for; its keys are taken from known_hosts")
	f.BoolVar(&o.remove, "remove", false, "take it away from where it was, without asking")
	f.BoolVar(&o.keep, "keep", false, "leave it where it was, without asking")
	return c
}

func (o adoptOptions) check(names []string) error {
	switch {
	case o.remove && o.keep:
		return usageError{errors.New("--remove and --keep exclude each other")}
	case len(names) > 1 && (o.as != "" || o.origin != "" || o.host != "" || len(o.paths) > 0):
		return usageError{errors.New("--as, --origin, --path and --host are for one NAME")}
	case len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names):
		return usageError{errors.New("a NAME is given twice")}
	}
	return nil
}

// ambient looks into the account's places and the current directory's tree.
func (a *app) ambient(ctx context.Context) ([]ambient.Finding, []string) {
	account := ambient.Account{Homes: accountHomes(), Variables: os.Environ(), AgentPath: os.Getenv("SSH_AUTH_SOCK")}
	if dir, err := os.Getwd(); err == nil && dir != "/" {
		account.Project = dir
	}
	return ambient.Find(ctx, account)
}

// movable reports whether Yett has the kind of a finding and its value can be
// had. Whether its service takes a bearer token the person knows better.
func movable(f ambient.Finding) bool {
	return f.HasValue() && slices.Contains([]string{"token", ambient.KindVariable, ambient.KindPrivateKey}, f.Kind)
}

// lying is one finding as yett adopt prints it.
type lying struct {
	ambient.Finding
	Movable bool `json:"movable"`
}

func (a *app) listAmbient(ctx context.Context) error {
	found, unread := a.ambient(ctx)
	if a.json {
		list := []lying{}
		for _, f := range found {
			list = append(list, lying{f, movable(f)})
		}
		return printJSON(a.stdout, map[string]any{"found": list, "unread": append([]string{}, unread...)})
	}
	w := aligned(a.stdout)
	can, first := 0, ""
	for _, f := range found {
		move := ""
		if movable(f) {
			if can++; first == "" {
				first = approval.Printable(f.Name)
			}
			move = "can be moved"
		} else if f.Obstacle != "" {
			move = "cannot be moved: " + f.Obstacle
		}
		fmt.Fprintln(w, strings.TrimRight(approval.Printable(f.Name)+"\t"+f.Kind+"\t"+placeOf(f)+"\tread by "+f.Readers+"\t"+move, "\t"))
	}
	w.Flush()
	for _, u := range unread {
		fmt.Fprintf(a.stdout, "not read: %s\n", approval.Printable(u))
	}
	if len(found) == 0 {
		fmt.Fprintln(a.stdout, "No credential was found that agents of this login can use without Yett.")
		return nil
	}
	fmt.Fprintf(a.stdout, "%s that agents of this login can use without Yett; %d can be moved\n", screen.HowMany(len(found), "credential"), can)
	if can > 0 {
		a.advise("next: yett adopt %s", first)
	}
	return nil
}

func placeOf(f ambient.Finding) string {
	s := f.Path
	if f.Where != "" {
		s = strings.TrimPrefix(s+": "+f.Where, ": ")
	}
	return approval.Printable(s)
}

// pick finds what the person named.
func pick(found []ambient.Finding, name string) (ambient.Finding, error) {
	i := slices.IndexFunc(found, func(f ambient.Finding) bool { return f.Name == name })
	if i < 0 {
		return ambient.Finding{}, wire.Errorf(wire.CodeBadRequest, "Nothing that was found is called %s.", approval.Escape(name, 100)).
			Then("yett adopt lists what was found.")
	}
	f := found[i]
	if !movable(f) {
		e := wire.Errorf(wire.CodeBadRequest, "%s cannot be moved: Yett has no kind for it, or cannot take it from there.", f.Name)
		if f.Obstacle != "" {
			e.Message = f.Name + " cannot be moved: " + f.Obstacle + "."
		}
		e.NextStep = "Make a token of its own for agents at the issuer and give it to Yett: yett add. " + signOut(f)
		return f, e
	}
	return f, nil
}

func signOut(f ambient.Finding) string {
	switch {
	case f.SignOut != "":
		return "This takes it away here: " + f.SignOut + "."
	case f.Path == "":
		return "Take it out of what sets it in your shell."
	}
	return "Take it out of " + approval.Printable(f.Path) + " yourself."
}
