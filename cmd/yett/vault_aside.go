package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/yett-broker/yett/internal/vault"
)

// warnOfAsides adds to a warning which vaults beside the changed one a restore
// has put aside: they are as they were, and so is what opens them.
func (a *app) warnOfAsides(warning string) string {
	loc, err := a.location()
	if err != nil {
		return warning
	}
	entries, err := os.ReadDir(loc.Home)
	said := []string{}
	if warning != "" {
		said = append(said, warning)
	}
	if err != nil {
		said = append(said, fmt.Sprintf("It is not known whether a restore put vaults aside here that open as before: %v.", err))
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), vault.FileName+".replaced-") {
			names = append(names, filepath.Join(loc.Home, e.Name()))
		}
	}
	if len(names) > 0 {
		said = append(said, "Put aside by a restore, and opened by what opened it then, perhaps the old one: "+strings.Join(names, ", ")+". Remove what you do not need.")
	}
	return strings.Join(said, " ")
}
