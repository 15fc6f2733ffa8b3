package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a wrong call of the command line.
type usageError struct{ cause error }

func (e usageError) Error() string { return e.cause.Error() }

// usageErrors marks wrong arguments as wrong calls, in our own words.
func usageErrors(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return wrongArguments(c, args, err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		usageErrors(sub)
	}
}

// wrongArguments says which word is missing or too many.
func wrongArguments(c *cobra.Command, args []string, cause error) error {
	required, most := argumentNames(c)
	if c.HasSubCommands() && most == 0 {
		return noCommand(c, args[0])
	}
	switch {
	case len(args) < len(required):
		missing := required[len(args):]
		verb := "is"
		if len(missing) > 1 {
			verb = "are"
		}
		return usageError{fmt.Errorf("%s %s missing", strings.Join(missing, " and "), verb)}
	case most == 0:
		return usageError{fmt.Errorf("%s takes no argument, and was given %q", c.CommandPath(), args[0])}
	case len(args) > most:
		return usageError{fmt.Errorf("%q is one argument too many", args[most])}
	case len(c.ValidArgs) > 0:
		return usageError{fmt.Errorf("%s is one of %s, and not %q", required[0], strings.Join(c.ValidArgs, ", "), args[0])}
	}
	return usageError{cause}
}

// noCommand names what the person may have meant.
func noCommand(c *cobra.Command, word string) error {
	c.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("there is no command %q", c.CommandPath()+" "+word)
	if meant := c.SuggestionsFor(word); len(meant) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(meant, " or "))
	}
	return usageError{err}
}

// argumentNames are the arguments that a command must have, as its form names
// them, and the greatest number of them.
func argumentNames(c *cobra.Command) (required []string, most int) {
	for i, form := range strings.Split(c.Use, " | ") {
		form, _, _ = strings.Cut(form, " --") // flags are no arguments
		words := strings.Fields(strings.ReplaceAll(form, "...", ""))[1:]
		most = max(most, len(words))
		must := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.HasPrefix(w, "[") })
		if i == 0 || len(must) < len(required) {
			required = must
		}
	}
	return required, most
}

// wrongFlag says what is wrong with a flag and what to write.
func wrongFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var empty *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return usageError{fmt.Errorf("%s has no flag %s", c.CommandPath(), dashed(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()))}
	case errors.As(err, &empty):
		return usageError{fmt.Errorf("%s needs a value", dashed(empty.GetSpecifiedName(), empty.GetSpecifiedShortnames()))}
	case errors.As(err, &bad):
		return usageError{fmt.Errorf("--%s takes %s, not %q%s", bad.GetFlag().Name, kindOf(bad.GetFlag()), bad.GetValue(), withUnit(bad))}
	}
	return usageError{err}
}

// wrongGroup is about flags of which only one may be given: cobra names them in
// brackets at the end of its sentence.
func wrongGroup(err error) error {
	_, set, found := strings.Cut(err.Error(), "; [")
	names, _, closed := strings.Cut(set, "]")
	if !found || !closed {
		return usageError{err}
	}
	return usageError{fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(names), " and --"))}
}

func dashed(name, short string) string {
	if short != "" {
		return "-" + name
	}
	return "--" + name
}

// kindOf is what a flag takes, for a person.
func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return "a length of time like 30m or 8h"
	case "int", "int64":
		return "a number"
	case "bool":
		return "true or false"
	}
	return "a " + f.Value.Type()
}

// withUnit finishes a length of time that was given as a bare number.
func withUnit(bad *pflag.InvalidValueError) string {
	if !strings.Contains(bad.Unwrap().Error(), "missing unit in duration") {
		return ""
	}
	return fmt.Sprintf("; write %sm for minutes or %sh for hours", bad.GetValue(), bad.GetValue())
}

// rightForm is the next step after a wrong call.
func rightForm(c *cobra.Command) string {
	switch _, most := argumentNames(c); {
	case !c.HasParent():
		return "The commands: yett --help."
	case c.HasSubCommands() && most == 0:
		return "Its commands: " + c.CommandPath() + " --help."
	}
	path := strings.TrimSuffix(c.CommandPath(), c.Name())
	var forms []string
	for _, form := range strings.Split(c.Use, " | ") {
		forms = append(forms, path+form)
	}
	return "The form: " + strings.Join(forms, ", or ") + ". Its flags: " + c.CommandPath() + " --help."
}
