package sshconfig

import (
	"slices"
	"strings"
)

// addUp are the keywords of which every value counts.
var addUp = []string{"identityfile", "certificatefile", "sendenv", "localforward", "remoteforward", "dynamicforward"}

// Options are the directives that apply to one host.
type Options struct {
	all []Directive
}

// Names returns the names that the configuration has a block for, without
// patterns: what a person would type behind 'ssh'.
func (c *Config) Names() []string {
	var names []string
	for _, d := range c.directives {
		if d.Key != "host" {
			continue
		}
		for _, p := range d.Args {
			if !strings.ContainsAny(p, "*?!") && !slices.Contains(names, p) && applies(d.when, p, p) {
				names = append(names, p)
			}
		}
	}
	return names
}

// Lookup returns what applies to a host by the name that was asked for.
func (c *Config) Lookup(name string) Options {
	var o Options
	seen := map[string]bool{}
	host := name
	for _, d := range c.directives {
		if d.Key == "host" || !applies(d.when, name, host) {
			continue
		}
		if seen[d.Key] && !slices.Contains(addUp, d.Key) {
			continue
		}
		seen[d.Key] = true
		if d.Key == "hostname" && len(d.Args) > 0 {
			host = d.Args[0]
		}
		o.all = append(o.all, d)
	}
	return o
}

func applies(when []condition, name, host string) bool {
	for _, w := range when {
		subject, patterns := name, w.patterns
		if w.resolved {
			subject, patterns = strings.ToLower(host), lower(patterns)
		}
		if w.never || !matchList(patterns, subject) {
			return false
		}
	}
	return true
}

// Value is the first argument of a keyword, or nothing.
func (o Options) Value(key string) string {
	for _, d := range o.all {
		if d.Key == key && len(d.Args) > 0 {
			return d.Args[0]
		}
	}
	return ""
}

// Values are all arguments of a keyword.
func (o Options) Values(key string) []string {
	var all []string
	for _, d := range o.all {
		if d.Key == key {
			all = append(all, d.Args...)
		}
	}
	return all
}

// Others returns what applies besides the keywords that are named.
func (o Options) Others(keys ...string) []Directive {
	var rest []Directive
	for _, d := range o.all {
		if !slices.Contains(keys, d.Key) {
			rest = append(rest, d)
		}
	}
	return rest
}

// matchList reports whether a list of patterns names s: one does, and none that
// begins with '!' does. Names of Host blocks keep their case, those of hosts do
// not.
func matchList(patterns []string, s string) bool {
	found := false
	for _, p := range patterns {
		negated := strings.HasPrefix(p, "!")
		if !match(strings.TrimPrefix(p, "!"), s) {
			continue
		}
		if negated {
			return false
		}
		found = true
	}
	return found
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

// match compares with '*' for any text and '?' for one character.
func match(pattern, s string) bool {
	star, mark, i, j := -1, 0, 0, 0
	for j < len(s) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, mark = i, j
			i++
		case i < len(pattern) && (pattern[i] == '?' || pattern[i] == s[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
