package access

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Diff shows in a stable order what p changes in old, which may be nil. It is
// empty when nothing changes. Text of the file is quoted, so that what is
// shown cannot rearrange a terminal.
func (p *Policy) Diff(old *Policy) string {
	var b strings.Builder
	after, before := p.describe(), old.describe()
	for _, section := range []string{"credential", "host", "capability"} {
		names := slices.Sorted(maps.Keys(after[section]))
		for name := range before[section] {
			if _, ok := after[section][name]; !ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			diffEntry(&b, keyText(section, name), before[section][name], after[section][name])
		}
	}
	return b.String()
}

// entry is what a person should know of one table, line by line: the label of
// a line, and its text.
type entry []field

type field struct{ label, text string }

func diffEntry(b *strings.Builder, title string, before, after entry) {
	switch {
	case before == nil:
		fmt.Fprintf(b, "+ %s\n", title)
		for _, f := range after {
			fmt.Fprintf(b, "    + %s: %s\n", f.label, f.text)
		}
	case after == nil:
		fmt.Fprintf(b, "- %s\n", title)
		for _, f := range before {
			fmt.Fprintf(b, "    - %s: %s\n", f.label, f.text)
		}
	case !slices.Equal(before, after):
		fmt.Fprintf(b, "~ %s\n", title)
		for _, f := range before {
			if !slices.Contains(after, f) {
				fmt.Fprintf(b, "    - %s: %s\n", f.label, f.text)
			}
		}
		for _, f := range after {
			if !slices.Contains(before, f) {
				fmt.Fprintf(b, "    + %s: %s\n", f.label, f.text)
			}
		}
	}
}

func (p *Policy) describe() map[string]map[string]entry {
	out := map[string]map[string]entry{"credential": {}, "host": {}, "capability": {}}
	if p == nil {
		return out
	}
	for name, c := range p.credentials {
		out["credential"][name] = c.describe()
	}
	for name, h := range p.hosts {
		out["host"][name] = h.describe()
	}
	for name, c := range p.capabilities {
		out["capability"][name] = c.describe()
	}
	return out
}

func (c Credential) describe() entry {
	e := entry{{"kind", c.Kind}, {"place", c.place}}
	show := func(label, text string) {
		if text != "" {
			e = append(e, field{label, text})
		}
	}
	if c.Kind == KindHeader {
		show("header", c.Header+": "+strings.TrimSuffix(strconv.QuoteToASCII(c.Prefix), `"`)+`…"`)
	}
	if c.User != "" {
		show("user", strconv.QuoteToASCII(c.User))
	}
	show("parameter", c.Parameter)
	show("cookie", c.Cookie)
	show("service", c.Service)
	show("region", c.Region)
	if o := c.OAuth; o != nil {
		show("token endpoint", o.Endpoint.String())
		show("client", o.ClientID)
		show("client secret", o.Secret)
		show("proves itself by", o.Auth)
		e = e.list("scope", o.Scopes, func(s string) string { return s })
		show("audience", o.Audience)
	}
	if c.Certificate != "" {
		e = append(e, describeCertificate(c.Certificate)...)
	}
	e = append(e, c.Transport.describe()...)
	e = e.flag("insecure", c.Insecure, "plain http without protection")
	return e.flag("private", c.Private, "may lie in a private network")
}

func (c *Capability) describe() entry {
	var e entry
	if c.Credential != "" {
		e = append(e, field{"credential", c.Credential})
	}
	if c.Host != "" {
		e = append(e, field{"host", c.Host})
	}
	e = e.list("method", c.Methods, func(s string) string { return s })
	e = e.list("path", c.Paths, func(s string) string { return s })
	if c.Query != nil {
		e = append(e, field{"query", "only the names below"})
		e = e.list("query", c.Query, strconv.QuoteToASCII)
	}
	e = e.list("command", c.Commands, strconv.QuoteToASCII)
	e = e.flag("terminal", c.PTY, "a command may have one")
	if c.Direction != "" {
		e = append(e, field{"direction", c.Direction})
	}
	e = e.list("remote", c.Remote, strconv.QuoteToASCII)
	e = e.list("local", c.Local, strconv.QuoteToASCII)
	if c.MaxSize != 0 {
		e = append(e, field{"largest file", c.MaxSizeText()})
	}
	e = e.flag("overwrite", c.Overwrite, "files that are there may be replaced")
	e = append(e, field{"confirm", c.Confirm})
	if c.Budget != nil {
		e = append(e, field{"budget", c.Budget.String()})
	}
	return e.flag("repeat", c.Repeat, "may be repeated while an equal action is unresolved")
}

func (e entry) list(label string, values []string, show func(string) string) entry {
	for _, v := range values {
		e = append(e, field{label, show(v)})
	}
	return e
}

func (e entry) flag(label string, set bool, text string) entry {
	if !set {
		return e
	}
	return append(e, field{label, text})
}
