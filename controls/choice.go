package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// choice says which rows are tried.
type choice struct {
	room   string
	match  *regexp.Regexp
	since  string
	sample int
	seed   uint64
}

func (c choice) choose(ctx context.Context, root string, tables []table, progress io.Writer) ([]control, error) {
	rows := c.named(tables)
	if c.since != "" {
		var err error
		if rows, err = changedSince(ctx, root, c.since, rows); err != nil {
			return nil, err
		}
	}
	if c.sample > 0 && c.sample < len(rows) {
		seed := c.seed
		if seed == 0 {
			seed = rand.Uint64()
		}
		fmt.Fprintf(progress, "%d of %d rows: -seed %d\n", c.sample, len(rows), seed)
		rows = someOf(rows, c.sample, seed)
	}
	return rows, nil
}

func (c choice) named(tables []table) []control {
	var rows []control
	for _, t := range tables {
		if c.room != "" && t.room != c.room {
			continue
		}
		for _, row := range t.Controls {
			if c.match.MatchString(row.Name) || slices.ContainsFunc(row.Tests, c.match.MatchString) {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// someOf returns n rows in their order; the same ones for the same seed.
func someOf(rows []control, n int, seed uint64) []control {
	places := rand.New(rand.NewPCG(seed, 0)).Perm(len(rows))[:n]
	slices.Sort(places)
	some := make([]control, n)
	for i, at := range places {
		some[i] = rows[at]
	}
	return some
}

// changedSince leaves the rows that may mean something else than at a revision.
func changedSince(ctx context.Context, root, revision string, rows []control) ([]control, error) {
	out, err := git(ctx, root, "diff", "--name-only", "--relative", revision, "--")
	if err != nil {
		return nil, err
	}
	differs := map[string]bool{}
	for _, name := range strings.Fields(out) {
		differs[name] = true
	}
	before := map[string]control{}
	rooms := map[string]bool{}
	for _, c := range rows {
		rooms[c.room] = true
	}
	for room := range rooms {
		text, err := git(ctx, root, "show", revision+":./controls/"+room+".toml")
		if err != nil { // the room is new
			continue
		}
		t, err := parseTable(room, []byte(text))
		if err != nil { // as it was written then: all of its rows count as changed
			continue
		}
		for _, c := range t.Controls {
			before[c.Name] = c
		}
	}
	tests := testFiles{}
	var changed []control
	for _, c := range rows {
		files, err := tests.of(root, c)
		if err != nil {
			return nil, err
		}
		for _, change := range c.changes() {
			files = append(files, filepath.ToSlash(change.File))
		}
		if !reflect.DeepEqual(before[c.Name], c) || slices.ContainsFunc(files, func(f string) bool { return differs[f] }) {
			changed = append(changed, c)
		}
	}
	return changed, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = root
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
