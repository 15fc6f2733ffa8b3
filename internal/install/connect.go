package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shimName is the program that an entry starts.
const shimName = "yett-mcp"

// Options choose what is connected.
type Options struct {
	Config string // the entry's file, where the person names it
	Allow  bool   // let the client call Yett's tools without asking by itself
}

// Plan is what connecting or disconnecting would write.
type Plan struct {
	Client Client
	Files  []*File
	Notes  []string // for the person

	added map[*File][]addition
	gone  bool // it takes away
}

// ErrTaken: the name is used by a server that is not Yett's.
var ErrTaken = errors.New("there is a server named yett that is not Yett's")

// ErrNoRule: the client has no rule that would let it call tools unasked.
var ErrNoRule = errors.New("the client has no such rule")

// configOf is the file of a client's entry.
func (p Place) configOf(c Client, o Options) (path string, named bool) {
	if o.Config != "" {
		return o.Config, true
	}
	candidates := c.Files[p.System]
	for _, below := range candidates {
		if _, err := os.Lstat(p.path(below)); err == nil {
			return p.path(below), false
		}
	}
	return p.path(candidates[0]), false
}

// Found reports whether the client seems to be used by the account.
func (p Place) Found(c Client) bool {
	return slices.ContainsFunc(c.Marks, func(below string) bool {
		_, err := os.Lstat(p.path(below))
		return err == nil
	})
}

// Connect plans the client's entry for a shim, and the rules that let it.
func (p Place) Connect(c Client, shim string, o Options) (*Plan, error) {
	plan := &Plan{Client: c, added: map[*File][]addition{}}
	path, named := p.configOf(c, o)
	f, err := p.open(path, named)
	if err != nil {
		return nil, err
	}
	plan.Files = append(plan.Files, f)
	plan.noteLink(f)
	if err := plan.addEntry(f, c.entry(shim)); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if !o.Allow {
		return plan, nil
	}
	if len(c.Allow) == 0 {
		return nil, noRule(c)
	}
	for _, rule := range c.Allow {
		if err := p.addRule(plan, rule, o); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

func noRule(c Client) error { return fmt.Errorf("%w: %s", ErrNoRule, c.WhyNot) }

// addEntry puts the entry into its file, or corrects the one that is there.
func (plan *Plan) addEntry(f *File, entry string) error {
	c := plan.Client
	e, err := openEditor(string(f.After), c.Format)
	if err != nil {
		return err
	}
	there, found, err := e.get(c.At)
	if err != nil {
		return err
	}
	if !found {
		made, err := e.put(c.At, entry)
		if err != nil {
			return err
		}
		plan.did(f, e, addition{At: c.At, Made: made})
		return nil
	}
	if !startsShim(there) {
		return fmt.Errorf("%s: %w", strings.Join(c.At, "."), ErrTaken)
	}
	changed := false
	for _, name := range []string{"command", "args"} {
		want, wanted := member(entry, name)
		have, exists := member(there, name)
		if wanted && compact(have) != compact(want) && (exists || name == "command") || !wanted && exists && !empty(have) {
			if !wanted {
				want = "[]"
			}
			if _, err := e.put(append(slices.Clone(c.At), name), want); err != nil {
				return err
			}
			changed = true
		}
	}
	if changed {
		plan.did(f, e, addition{At: c.At})
	}
	return nil
}

// addRule puts one rule into its file.
func (p Place) addRule(plan *Plan, rule Rule, o Options) error {
	f, format := plan.Files[0], plan.Client.Format
	if rule.File != "" {
		if o.Config != "" {
			plan.Notes = append(plan.Notes, "The rule that lets it call Yett's tools lies in another file, "+p.path(rule.File)+"; with --config it is left out.")
			return nil
		}
		var err error
		format = rule.Format
		if f, err = plan.file(p, p.path(rule.File)); err != nil {
			return err
		}
	}
	e, err := openEditor(string(f.After), format)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	there, found, err := e.get(rule.At)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if !found && rule.OnlyIf != "" {
		plan.Notes = append(plan.Notes, "No rule was added to "+f.Path+". "+rule.OnlyIf)
		return nil
	}
	a := addition{At: rule.At}
	switch {
	case rule.Into == "element":
		if found && hasElement(there, rule.Value) {
			return nil
		}
		a.Element = rule.Value
		a.Made, err = e.putElement(rule.At, rule.Value)
	case found && compact(there) == compact(rule.Value):
		return nil
	default:
		a.Was = there
		a.Made, err = e.put(rule.At, rule.Value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	plan.did(f, e, a)
	return nil
}

// file is a further file of the plan.
func (plan *Plan) file(p Place, path string) (*File, error) {
	for _, f := range plan.Files {
		if f.Path == path {
			return f, nil
		}
	}
	f, err := p.open(path, false)
	if err != nil {
		return nil, err
	}
	plan.Files = append(plan.Files, f)
	plan.noteLink(f)
	return f, nil
}

// noteLink says when the file lies elsewhere than its path says.
func (plan *Plan) noteLink(f *File) {
	if info, err := os.Lstat(f.Path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		plan.Notes = append(plan.Notes, f.Path+" is a symbolic link; what changes is "+f.Real+".")
	}
}

func (plan *Plan) did(f *File, e editor, a addition) {
	f.After = []byte(e.String())
	plan.added[f] = append(plan.added[f], a)
}

// Changed reports whether anything would be written.
func (plan *Plan) Changed() bool { return slices.ContainsFunc(plan.Files, (*File).differs) }

// differs is Changed, but a file that is missing and stays so does not count.
func (f *File) differs() bool { return f.Changed() && (f.Exists || len(f.After) > 0) }

// member is the text of a member of an object.
func member(object, name string) (string, bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(object), &all) != nil {
		return "", false
	}
	v, ok := all[name]
	return string(v), ok
}

func empty(value string) bool { v := compact(value); return v == "[]" || v == "{}" || v == "null" }

func hasElement(array, element string) bool {
	var all []json.RawMessage
	json.Unmarshal([]byte(array), &all)
	return slices.ContainsFunc(all, func(v json.RawMessage) bool { return compact(string(v)) == compact(element) })
}

// startsShim reports whether an entry starts a yett-mcp, wherever it lies.
func startsShim(entry string) bool {
	command, _ := member(entry, "command")
	var one string
	var words []string
	switch {
	case json.Unmarshal([]byte(command), &one) == nil:
	case json.Unmarshal([]byte(command), &words) == nil && len(words) > 0:
		one = words[0]
	}
	return filepath.Base(one) == shimName
}
