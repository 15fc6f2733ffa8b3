package access

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/action"
)

// checkPathPattern accepts a canonical path in which a segment may be '*' and
// the last one '**'. everything: no segment of it is fixed.
func checkPathPattern(pattern string) (everything bool, err error) {
	canonical, refusal := action.CanonicalPath(pattern)
	if refusal != nil {
		return false, errors.New(refusal.Detail)
	}
	if canonical != pattern {
		return false, fmt.Errorf("must be written as %s", canonical)
	}
	segments := strings.Split(pattern[1:], "/")
	fixed := false
	wild := false
	for i, s := range segments {
		switch {
		case s == "**" && i == len(segments)-1:
			wild = true
		case s == "**":
			return false, errors.New("'**' may only be the last segment")
		case s == "*":
			wild = true
		case strings.Contains(s, "*"):
			return false, errors.New("'*' must be a whole segment (a star itself is written %2A)")
		default:
			fixed = fixed || s != ""
		}
	}
	return wild && !fixed, nil
}

// matchPath reports whether a canonical path lies within a pattern. '*' is one
// segment that is not empty; a final '**' is one or more, of which only the
// very last may be empty (a trailing slash).
func matchPath(pattern, path string) bool {
	want := strings.Split(pattern[1:], "/")
	have := strings.Split(path[1:], "/")
	for i, w := range want {
		if i >= len(have) {
			return false
		}
		switch w {
		case "**":
			return have[i] != ""
		case "*":
			if have[i] == "" {
				return false
			}
		default:
			if have[i] != w {
				return false
			}
		}
	}
	return len(want) == len(have)
}

// checkCommandPattern accepts a verbatim command, or words separated by single
// spaces of which some are '*'. everything: the program itself is not fixed.
func checkCommandPattern(pattern string) (everything bool, err error) {
	if !utf8.ValidString(pattern) || strings.ContainsFunc(pattern, unicode.IsControl) {
		return false, errors.New("a command has a control character")
	}
	if strings.TrimSpace(pattern) != pattern || pattern == "" {
		return false, errors.New("a command is empty or has spaces around it")
	}
	if !strings.Contains(pattern, "*") {
		return false, nil
	}
	words := strings.Split(pattern, " ")
	for _, w := range words {
		switch {
		case w == "*" || action.IsPlainArgument(w):
		case w == "":
			return false, errors.New("a command with '*' has single spaces between its words")
		case strings.Contains(w, "*"):
			return false, errors.New("'*' must be a whole word; it is not a shell wildcard")
		default:
			return false, errors.New("a command with '*' may not have shell characters elsewhere")
		}
	}
	return words[0] == "*", nil
}

// matchCommand reports whether a command lies within a pattern. Without '*'
// that is equality. With it, every word must be one that no shell reads in
// another way, and a word for '*' must not begin with '-'.
func matchCommand(pattern, command string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == command
	}
	want := strings.Split(pattern, " ")
	have := strings.Split(command, " ")
	if len(want) != len(have) {
		return false
	}
	for i, w := range want {
		if !action.IsPlainArgument(have[i]) {
			return false
		}
		if w == "*" {
			if have[i][0] == '-' {
				return false
			}
		} else if have[i] != w {
			return false
		}
	}
	return true
}
