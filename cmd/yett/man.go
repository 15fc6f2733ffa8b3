package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/manual"
)

// newMan writes the manual. It is hidden: packages call it.
func newMan(*app) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			date, err := manualDate()
			if err != nil {
				return err
			}
			return manual.Write(c.Root(), args[0], version, date)
		},
	}
}

// manualDate is the date of the sources, so that the same sources give the
// same pages.
func manualDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, usageError{fmt.Errorf("SOURCE_DATE_EPOCH is no number of seconds: %q", text)}
	}
	return time.Unix(seconds, 0).UTC(), nil
}
