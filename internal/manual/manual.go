// Package manual writes the manual pages of a command line in the man macros, one
// for each command, from what its --help says. Nothing of a text is a command to
// the formatter, and no character is beyond ASCII.
package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Write writes one page for each command, and an overview.
func Write(root *cobra.Command, dir, version string, date time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the manual: %w", err)
	}
	for _, c := range documented(root) {
		var page bytes.Buffer
		writePage(&page, c, version, date)
		if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), page.Bytes(), 0o644); err != nil {
			return fmt.Errorf("writing the manual: %w", err)
		}
	}
	return nil
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
