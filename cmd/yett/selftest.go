package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/selftest"
)

func newSelftest(a *app) *cobra.Command {
	var role, socket string
	var interactive bool
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Try on this machine what Yett asks of the system",
		Long: "Starts a few processes of its own and looks whether the system names them, and\n" +
			"whether a death, an exec and a passed descriptor are noticed. Needs no vault and no\n" +
			"broker, and leaves nothing behind. Each line is PASS, FAIL or SKIP; a line that\n" +
			"fails makes the command exit with 1.\n\n" +
			"The log is worth sending from a system that Yett was built for and never ran on.",
		Example: "  yett selftest\n  yett selftest --json > selftest.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if role != "" {
				return reported{selftest.Play(role, socket)}
			}
			return a.selftest(c.Context(), interactive)
		},
	}
	c.Flags().BoolVar(&interactive, "interactive", false, "also try what asks you, or changes something for a moment (macOS)")
	c.Flags().StringVar(&role, "role", "", "play the other side of a check")
	c.Flags().StringVar(&socket, "socket", "", "where to connect")
	c.Flags().MarkHidden("role")
	c.Flags().MarkHidden("socket")
	return c
}

func (a *app) selftest(ctx context.Context, interactive bool) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	checks, counts := []selftest.Check{}, map[selftest.Result]int{}
	ok, err := selftest.Run(ctx, program, interactive, func(c selftest.Check) {
		checks = append(checks, c)
		counts[c.Result]++
		if !a.json {
			code := ""
			if c.Code != 0 {
				code = fmt.Sprintf(" [%d]", c.Code)
			}
			fmt.Fprintf(a.stdout, "%s  %s: %s%s\n", c.Result, c.Name, c.Found, code)
		}
	})
	if err != nil {
		return err
	}
	if a.json {
		err = printJSON(a.stdout, map[string]any{"ok": ok, "system": runtime.GOOS, "architecture": runtime.GOARCH, "version": version, "checks": checks})
	} else {
		_, err = fmt.Fprintf(a.stdout, "\n%s/%s, yett %s: %d passed, %d failed, %d not tried\n", runtime.GOOS, runtime.GOARCH, version,
			counts[selftest.Pass], counts[selftest.Fail], counts[selftest.Skip])
	}
	if err != nil {
		return err
	}
	if !ok {
		return reported{exitFailed}
	}
	return nil
}
