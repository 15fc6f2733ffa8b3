package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/endpoint"
)

// ownHomeOnly are the commands that refuse --home: what they install leads to
// the broker of the account's own home.
var ownHomeOnly = []string{"connect", "service", "uninstall"}

// knowCommands remembers what stands after yett in a call of each command that
// takes --home: longer ones first, as they are looked for.
func (a *app) knowCommands(of *cobra.Command, before string) {
	for _, c := range of.Commands() {
		if name := before + c.Name(); !c.Hidden && !slices.Contains(ownHomeOnly, name) {
			a.knowCommands(c, name+" ")
			a.commands = append(a.commands, name)
		}
	}
}

// here writes the --home of this command into each command of ours that a text
// tells a person to run, so that it reaches the same broker. Without --home the
// text stays as it is.
func (a *app) here(text string) string {
	if a.home == "" || len(a.commands) == 0 {
		return text
	}
	home := a.home
	if loc, err := endpoint.InHome(home); err == nil {
		home = loc.Home
	}
	ours := regexp.MustCompile(`\byett (` + strings.Join(a.commands, "|") + `)\b`)
	return ours.ReplaceAllStringFunc(text, func(command string) string { return command + " --home " + shellWord(home) })
}

// advise prints a line that names commands to run.
func (a *app) advise(format string, args ...any) error {
	_, err := fmt.Fprintln(a.stdout, a.here(fmt.Sprintf(format, args...)))
	return err
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord is a word as a shell takes it.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
