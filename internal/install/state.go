package install

import "strings"

// State is one client as yett connect lists it.
type State struct {
	Client    string `json:"client"`
	Name      string `json:"name"`
	File      string `json:"file"`
	Found     bool   `json:"found"`
	Connected bool   `json:"connected"`
	Problem   string `json:"problem,omitempty"`
}

// Word says it in two words.
func (s State) Word() string {
	switch {
	case s.Problem != "":
		return "see below"
	case s.Connected:
		return "connected"
	case s.Found:
		return "found"
	}
	return "not found"
}

// States are all clients: which of them the account uses and which start this
// shim.
func (p Place) States(shim string) []State {
	var all []State
	for _, c := range Clients() {
		path, _ := p.configOf(c, Options{})
		s := State{Client: c.ID, Name: c.Name, File: path, Found: p.Found(c)}
		if plan, err := p.Connect(c, shim, Options{}); err != nil {
			s.Problem = err.Error()
		} else {
			s.Connected = !plan.Changed()
		}
		all = append(all, s)
	}
	return all
}

// Entry is what would stand in an empty configuration, and where.
func (p Place) Entry(c Client, shim string, o Options) (file, text string, err error) {
	file, _ = p.configOf(c, o)
	plan := &Plan{Client: c, Files: []*File{{Path: file}}, added: map[*File][]addition{}}
	if err := plan.addEntry(plan.Files[0], c.entry(shim)); err != nil {
		return "", "", err
	}
	if !o.Allow {
		return file, string(plan.Files[0].After), nil
	}
	if len(c.Allow) == 0 {
		return "", "", noRule(c)
	}
	for _, rule := range c.Allow {
		if rule.File == "" {
			err = p.addRule(plan, rule, o)
		}
		if err != nil {
			return "", "", err
		}
	}
	return file, string(plan.Files[0].After), nil
}

// Difference is what the plan changes, as unified differences.
func (plan *Plan) Difference() string {
	var all strings.Builder
	for _, f := range plan.Files {
		all.WriteString(f.Difference())
	}
	return all.String()
}

// Word says what was done.
func (d Done) Word() string {
	switch {
	case d.Removed:
		return "removed:"
	case d.Created:
		return "made:"
	}
	return "changed:"
}
