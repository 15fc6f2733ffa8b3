package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newMan writes the manual. It is hidden: packages call it.
func newMan(*app) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(c *cobra.Command, args []string) error { return writeManual(c.Root(), args[0]) },
	}
}

// writeManual writes one page for each command, and an overview.
func writeManual(root *cobra.Command, dir string) error {
	date, err := manualDate()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the manual: %w", err)
	}
	for _, c := range documented(root) {
		var page bytes.Buffer
		writePage(&page, c, date)
		if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), page.Bytes(), 0o644); err != nil {
			return fmt.Errorf("writing the manual: %w", err)
		}
	}
	return nil
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

// documented returns a command and all below it that are shown to people.
func documented(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, documented(sub)...)
		}
	}
	return all
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }
