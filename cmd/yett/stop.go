package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "End the broker and every session",
		Long:  "Ends the broker and every session; also a broker of another release.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conn, _, err := a.dialAny(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := call(c.Context(), conn, wire.MethodBrokerStop, wire.Empty{}, nil, nil); err != nil {
				return err
			}
			select {
			case <-conn.Done(): // the broker closes the channel when it has stopped
			case <-c.Context().Done():
			}
			if a.json {
				return printJSON(a.stdout, map[string]any{"stopped": true})
			}
			fmt.Fprintln(a.stdout, "Stopped. Every session has ended.")
			return nil
		},
	}
}
