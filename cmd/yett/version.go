package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/wire"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the broker's if it runs",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := map[string]any{"version": version, "protocol_min": wire.ProtocolMin, "protocol_max": wire.ProtocolMax,
				"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "broker_version": nil}
			if conn, _, err := a.dialAny(c.Context()); err == nil {
				v["broker_version"] = conn.Hello().BrokerVersion
				conn.Close()
			}
			if a.json {
				return printJSON(a.stdout, v)
			}
			fmt.Fprintf(a.stdout, "yett %s (protocol %d to %d, %s, %s)\n", version, wire.ProtocolMin, wire.ProtocolMax, runtime.Version(), v["platform"])
			if v["broker_version"] != nil {
				fmt.Fprintf(a.stdout, "broker %s\n", v["broker_version"])
			}
			return nil
		},
	}
}
