package ambient

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/yett-broker/yett/internal/durable"
)

var (
	// ErrNoValue: there is no value that could be taken from the place.
	ErrNoValue = errors.New("its value cannot be taken from there")
	// ErrGone: the value is not there any more, or another one is.
	ErrGone = errors.New("it is not there any more, or is another one now")
	// ErrByHand: taking it away could take something else with it.
	ErrByHand = errors.New("it cannot be taken away without its surroundings")
)

// HasValue reports whether Value can take it from its place.
func (f Finding) HasValue() bool {
	return f.Kind != KindAgentKey && f.Kind != KindHelper && f.format != "exists" && f.format != "" && f.Obstacle == ""
}

// Value reads the value of one finding. The caller clears it. environment is
// NAME=value, as os.Environ has them.
func Value(f Finding, environment []string) ([]byte, error) {
	switch {
	case !f.HasValue():
		return nil, ErrNoValue
	case f.format == "environment":
		for _, kv := range environment {
			if value, ok := strings.CutPrefix(kv, f.Where+"="); ok && value != "" {
				return []byte(value), nil
			}
		}
		return nil, ErrGone
	case f.Kind == KindPrivateKey:
		return readFile(f.Path)
	}
	text, err := readFile(f.Path)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	e, others := f.entry(text)
	defer clearValues(others)
	if e == nil {
		return nil, ErrGone
	}
	if e.obstacle != "" {
		return nil, fmt.Errorf("%w: %s", ErrNoValue, e.obstacle)
	}
	return bytes.Clone(e.value), nil
}

// entry finds the entry of a finding in its file's text; all are to be cleared.
func (f Finding) entry(text []byte) (*entry, []entry) {
	all := entriesOf(text, f.format, f.keys)
	if f.at < len(all) && whereOf(all[f.at]) == f.Where {
		return &all[f.at], all
	}
	return nil, all
}

func clearValues(all []entry) {
	for _, e := range all {
		clear(e.value)
	}
}

// Remove takes a value that was moved away from its place: the line it stands
// on, or the file that it is. The file is replaced as a whole and keeps its
// mode, and nothing of it is kept beside it. A place that holds another value
// by now stays as it is. What the disk keeps of the old file is beyond this.
func Remove(f Finding, value []byte) error {
	if f.format == "environment" || f.format == "" {
		return ErrByHand
	}
	before, err := os.Lstat(f.Path)
	if err != nil {
		return err
	}
	if !before.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: it is a link", f.Path, ErrByHand)
	}
	if st, ok := before.Sys().(*syscall.Stat_t); !ok || st.Nlink > 1 {
		return fmt.Errorf("%s: %w: another name of the file has it too", f.Path, ErrByHand)
	}
	text, err := readFile(f.Path)
	if err != nil {
		return err
	}
	defer clear(text)
	if f.format == "file" {
		if !bytes.Equal(bytes.TrimSpace(text), bytes.TrimSpace(value)) {
			return ErrGone
		}
		return os.Remove(f.Path)
	}
	e, all := f.entry(text)
	switch {
	case e == nil || !bytes.Equal(e.value, value):
		clearValues(all)
		return ErrGone
	case !e.removable:
		clearValues(all)
		return ErrByHand
	case e.obstacle != "":
		clearValues(all)
		return fmt.Errorf("%w: %s", ErrByHand, e.obstacle)
	}
	rest := slices.Concat(text[:e.line[0]], text[e.line[1]:])
	defer clear(rest)
	if now, err := os.Lstat(f.Path); err != nil || !os.SameFile(before, now) || !now.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("%s changed while it was read: %w", f.Path, ErrGone)
	}
	return durable.ReplaceFile(f.Path, rest, before.Mode().Perm())
}
