package install

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Disconnect plans to take away what Connect put there. Where nothing is
// recorded it is the entry in the usual place, if that starts a yett-mcp.
func (p Place) Disconnect(c Client, o Options) (*Plan, error) {
	plan := &Plan{Client: c, gone: true, added: map[*File][]addition{}}
	r, err := p.readRecord()
	if err != nil {
		return nil, err
	}
	usual, named := p.configOf(c, o)
	recorded := false
	for _, path := range sorted(r.Files) {
		w := r.Files[path]
		if w.Client != c.ID || o.Config != "" && path != o.Config {
			continue
		}
		recorded = true
		f, err := p.open(path, true)
		if err != nil {
			return nil, err
		}
		if err := plan.take(f, p.formatOf(c, path), w); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if recorded {
		return plan, nil
	}
	f, err := p.open(usual, named)
	if err != nil {
		return nil, err
	}
	if err := plan.take(f, c.Format, &wrote{Added: []addition{{At: c.At}}}); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return plan, nil
}

// formatOf is how a client reads a file that something was put into.
func (p Place) formatOf(c Client, path string) Format {
	for _, rule := range c.Allow {
		if rule.File != "" && p.path(rule.File) == path {
			return rule.Format
		}
	}
	return c.Format
}

// take edits what was added out of a file.
func (plan *Plan) take(f *File, format Format, w *wrote) error {
	plan.Files = append(plan.Files, f)
	plan.noteLink(f)
	plan.added[f] = w.Added
	if !f.Exists {
		return nil
	}
	e, err := openEditor(string(f.Before), format)
	if err != nil {
		return err
	}
	for _, a := range slices.Backward(w.Added) {
		if slices.Equal(a.At, plan.Client.At) && a.Element == "" {
			entry, found, err := e.get(a.At)
			if err != nil {
				return err
			}
			if found && !startsShim(entry) {
				plan.Notes = append(plan.Notes, "The entry in "+f.Path+" does not start yett-mcp any more; it was left as it is.")
				continue
			}
		}
		if _, err := e.take(a); err != nil {
			return err
		}
	}
	f.After = []byte(e.String())
	f.Remove = w.Created && e.blank()
	if f.Remove {
		f.made, f.After = w.Directories, nil
	}
	return nil
}

// Done is what Apply did to one file.
type Done struct {
	Path    string `json:"path"`
	Backup  string `json:"backup,omitempty"`
	Created bool   `json:"created,omitempty"`
	Removed bool   `json:"removed,omitempty"`
}

// Apply writes the plan. What is put somewhere is recorded before: a crash in
// between leaves a record of something that is not there, which removing finds
// out. What is taken away leaves the record last.
func (p Place) Apply(plan *Plan) ([]Done, error) {
	if !plan.gone {
		for _, f := range plan.Files {
			if !f.Exists {
				f.made = missingDirectories(f.Real)
			}
		}
		if err := p.change(func(r *record) { plan.enter(r) }); err != nil {
			return nil, fmt.Errorf("recording what is put where: %w", err)
		}
	}
	var all []Done
	for _, f := range plan.Files {
		if !f.differs() {
			continue
		}
		if err := makeDirectories(f); err != nil {
			return all, err
		}
		backup, err := f.write(p)
		if err != nil {
			return all, err
		}
		if f.Remove {
			removeEmpty(f.made)
		}
		all = append(all, Done{Path: f.Path, Backup: backup, Created: !f.Exists, Removed: f.Remove})
	}
	if plan.gone {
		return all, p.change(func(r *record) {
			for _, f := range plan.Files {
				delete(r.Files, f.Path)
			}
		})
	}
	return all, nil
}

// enter adds to the record what the plan puts where.
func (plan *Plan) enter(r *record) {
	for _, f := range plan.Files {
		if len(plan.added[f]) == 0 {
			continue
		}
		w := r.Files[f.Path]
		if w == nil || w.Client != plan.Client.ID || !f.Exists {
			w = &wrote{Client: plan.Client.ID, Created: !f.Exists, Directories: f.made}
			r.Files[f.Path] = w
		}
		for _, a := range plan.added[f] {
			if !slices.ContainsFunc(w.Added, a.same) {
				w.Added = append(w.Added, a)
			}
		}
	}
}

func makeDirectories(f *File) error {
	if f.Exists {
		return nil
	}
	for _, dir := range f.made {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// removeEmpty removes directories that nothing else was put into.
func removeEmpty(dirs []string) {
	for _, dir := range slices.Backward(dirs) {
		if os.Remove(dir) != nil {
			return
		}
	}
}
