package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/wire"
)

func newAccessTest(a *app) *cobra.Command {
	var query, headers []string
	overwrite := false
	c := &cobra.Command{
		Use:   "test CAPABILITY METHOD PATH | test CAPABILITY COMMAND | test CAPABILITY up|down LOCAL REMOTE",
		Short: "Say what the applied access file says to one action",
		Long: "Says whether an action lies within a capability, and how often you would be asked.\n" +
			"Nothing is sent, nobody is asked. It exits 3 if the action lies outside.",
		Args: cobra.RangeArgs(2, 4),
		RunE: func(c *cobra.Command, args []string) error {
			r := wire.AccessTest{Capability: args[0]}
			switch len(args) {
			case 2:
				r.Action = client.Action{Command: &args[1]}
			case 3:
				r.Action = client.Action{Method: &args[1], Path: &args[2]}
			default:
				r.Action = client.Action{Direction: &args[1], Local: &args[2], Remote: &args[3], Overwrite: &overwrite}
			}
			for _, q := range query {
				name, value, _ := strings.Cut(q, "=")
				if r.Action.Query == nil {
					r.Action.Query = client.Query{}
				}
				r.Action.Query[name] = append(r.Action.Query[name], value)
			}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, ":")
				if !ok {
					return usageError{fmt.Errorf("--header is NAME: VALUE")}
				}
				if r.Action.Headers == nil {
					r.Action.Headers = map[string]string{}
				}
				r.Action.Headers[name] = strings.TrimSpace(value)
			}
			return a.testAccess(c, r)
		},
	}
	c.Flags().BoolVar(&overwrite, "overwrite", false, "the copy replaces a file that is there")
	c.Flags().StringArrayVar(&query, "query", nil, "a query parameter `NAME=VALUE`; may be repeated")
	c.Flags().StringArrayVar(&headers, "header", nil, "a header `'NAME: VALUE'`; may be repeated")
	return c
}

func (a *app) testAccess(c *cobra.Command, request wire.AccessTest) error {
	var r wire.AccessTested
	if err := a.manage(c.Context(), wire.MethodAccessTest, request, &r); err != nil {
		return err
	}
	if r.Code == wire.CodeBadRequest {
		return &wire.Error{Code: r.Code, Message: "It is no such action: " + r.Message + ".", NextStep: "yett access list shows the kind of each capability."}
	}
	if a.json {
		printJSON(a.stdout, r)
	}
	switch {
	case !r.Allowed && a.json:
		return reported{exitRefused}
	case r.Code == wire.ReasonCapabilityUnknown:
		return wire.Errorf(r.Code, "There is no capability %s.", printable(request.Capability)).Then("List them: yett access list.")
	case !r.Allowed:
		return &wire.Error{Code: r.Code, Message: "It lies outside: " + r.Message + ".", NextStep: "yett access list shows what each capability allows."}
	case a.json:
	case r.Confirm == access.ConfirmEach:
		fmt.Fprintln(a.stdout, "It lies within. A card asks for the session, and one for each action.")
	default:
		fmt.Fprintln(a.stdout, "It lies within. A card asks for the session; a yes is for one action, or for a time.")
	}
	return nil
}
