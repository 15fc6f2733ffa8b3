package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/yett-broker/yett/internal/install"
)

// unitPlace is where systemd looks for the user units of a prefix.
const unitPlace = "lib/systemd/user/"

// addUnits adds the units of yett service install, for a yett that lies below
// prefix. An archive has none: whoever unpacks it runs yett service install,
// which writes them for the place that was chosen.
func (t tree) addUnits(prefix string) error {
	const anybody = 1000 // any account's runtime directory: systemd names it itself
	place := install.Place{System: "linux", UID: anybody}
	units, err := place.Units(path.Join(prefix, "bin/yett"), fmt.Sprintf("/run/user/%d/yett/broker.sock", anybody))
	if err != nil {
		return fmt.Errorf("writing the units: %w", err)
	}
	for _, u := range units {
		text, ok := strings.CutPrefix(u.Text, writtenBy)
		if !ok {
			return fmt.Errorf("%s does not begin as it did", path.Base(u.Path))
		}
		t[unitPlace+path.Base(u.Path)] = file{content: []byte(text)}
	}
	return nil
}

// writtenBy is the line that is not true of a package's units.
const writtenBy = "# Written by yett service install; yett service uninstall takes it away.\n"
