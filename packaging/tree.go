package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// tree is what is packed, by its slash-separated path.
type tree map[string]file

type file struct {
	content []byte
	program bool
}

func (f file) mode() os.FileMode {
	if f.program {
		return 0o755
	}
	return 0o644
}

func (t tree) names() []string { return slices.Sorted(maps.Keys(t)) }

// directories returns every directory above a file, parents first.
func (t tree) directories() []string {
	all := map[string]bool{}
	for name := range t {
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// write puts a file at a path beside it first, so that a program that runs is
// replaced rather than written into.
func (f file) write(path string, at time.Time) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".yett-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(f.content)
	for _, step := range []func() error{
		tmp.Close,
		func() error { return os.Chmod(tmp.Name(), f.mode()) },
		func() error { return os.Chtimes(tmp.Name(), at, at) },
		func() error { return os.Rename(tmp.Name(), path) },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return fmt.Errorf("installing %s: %w", path, err)
	}
	return nil
}
