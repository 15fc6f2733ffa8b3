package install

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names of the units, as the service manager knows them.
const (
	ServiceUnit = "yett.service"
	SocketUnit  = "yett.socket"
	Label       = "io.github.yett-broker.yett" // launchd's
)

//go:embed units/yett.service
var serviceText string

//go:embed units/yett.socket
var socketText string

//go:embed units/yett.plist
var plistText string

// Unit is one file of the service manager.
type Unit struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// Units are the files that make the account's service manager own the broker:
// it listens at socket and starts yett. On macOS launchd wants a path that it
// can bind; systemd names the runtime directory itself.
func (p Place) Units(yett, socket string) ([]Unit, error) {
	if strings.ContainsAny(yett+socket, "\n\r\x00") {
		return nil, errors.New("the path of yett or of its socket has a line break")
	}
	if p.System == "macos" {
		text := strings.NewReplacer("$yett", inXML(yett), "$socket", inXML(socket), "$log", inXML(p.path("Library/Logs/yett.log"))).Replace(plistText)
		return []Unit{{p.path("Library/LaunchAgents/" + Label + ".plist"), text}}, nil
	}
	dir := p.path(".config/systemd/user")
	listen := "%t/yett/broker.sock"
	if !strings.HasPrefix(socket, fmt.Sprintf("/run/user/%d/", p.UID)) {
		listen = strings.ReplaceAll(socket, "%", "%%")
	}
	return []Unit{
		{filepath.Join(dir, SocketUnit), strings.Replace(socketText, "$socket", listen, 1)},
		{filepath.Join(dir, ServiceUnit), strings.Replace(serviceText, "$yett", inUnit(yett), 1)},
	}, nil
}

// inUnit quotes a path for a command line of systemd.service(5): the first word
// is never expanded from the environment, but its specifiers are.
func inUnit(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(path) + `"`
}

func inXML(s string) string {
	var b bytes.Buffer
	xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}

// UnitPlan is what installing or taking away the units would write.
type UnitPlan struct {
	Files []*File
	Kept  []string // changed by somebody else, and left

	gone bool
}

// ForeignError is a unit that is there and was not put there by Yett, or was
// changed since.
type ForeignError struct{ Path string }

func (e *ForeignError) Error() string { return e.Path + " is there and is not as Yett wrote it" }

// InstallUnits plans to write units.
func (p Place) InstallUnits(units []Unit) (*UnitPlan, error) {
	r, err := p.readRecord()
	if err != nil {
		return nil, err
	}
	plan := &UnitPlan{}
	for _, u := range units {
		f, err := p.open(u.Path, false)
		if err != nil {
			return nil, err
		}
		if f.Exists && string(f.Before) != u.Text && r.Units[u.Path] != digest(f.Before) {
			return nil, &ForeignError{u.Path}
		}
		if !f.Exists {
			f.mode = 0o644
		}
		f.After = []byte(u.Text)
		plan.Files = append(plan.Files, f)
	}
	return plan, nil
}

// UninstallUnits plans to take away those units that are as they were written.
func (p Place) UninstallUnits() (*UnitPlan, error) {
	r, err := p.readRecord()
	if err != nil {
		return nil, err
	}
	plan := &UnitPlan{gone: true}
	for _, path := range sorted(r.Units) {
		f, err := p.open(path, false)
		if err != nil {
			return nil, err
		}
		switch {
		case !f.Exists:
		case digest(f.Before) != r.Units[path]:
			plan.Kept = append(plan.Kept, path)
			continue
		default:
			f.Remove, f.After = true, nil
		}
		plan.Files = append(plan.Files, f)
	}
	return plan, nil
}

// Installed are the recorded units: which are there, and which of them were
// changed since.
func (p Place) Installed() (there, changed []string, err error) {
	plan, err := p.UninstallUnits()
	if err != nil {
		return nil, nil, err
	}
	for _, f := range plan.Files {
		if f.Exists {
			there = append(there, f.Path)
		}
	}
	return append(there, plan.Kept...), plan.Kept, nil
}

// Difference is what the plan changes, as unified differences.
func (plan *UnitPlan) Difference() string {
	var all strings.Builder
	for _, f := range plan.Files {
		all.WriteString(f.Difference())
	}
	return all.String()
}

// Changed reports whether anything would be written.
func (plan *UnitPlan) Changed() bool { return plan.Difference() != "" }

// ApplyUnits writes the plan. What is written is recorded before, what is taken
// away after: a unit without a record would stay for ever, and a record without
// a unit names nothing.
func (p Place) ApplyUnits(plan *UnitPlan) error {
	if !plan.gone {
		err := p.change(func(r *record) {
			for _, f := range plan.Files {
				r.Units[f.Path] = digest(f.After)
			}
		})
		if err != nil {
			return fmt.Errorf("recording what is put where: %w", err)
		}
	}
	for _, f := range plan.Files {
		if err := p.writeUnit(f); err != nil {
			return err
		}
	}
	if !plan.gone {
		return nil
	}
	return p.change(func(r *record) {
		for _, f := range plan.Files {
			delete(r.Units, f.Path)
		}
	})
}

// writeUnit writes one unit; units need no copy of what they were, since only
// Yett's own are replaced.
func (p Place) writeUnit(f *File) error {
	if !f.differs() {
		return nil
	}
	if f.Remove {
		if err := f.unchanged(p); err != nil {
			return err
		}
		return os.Remove(f.Real)
	}
	if err := os.MkdirAll(filepath.Dir(f.Real), 0o700); err != nil {
		return err
	}
	return f.put(p)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
