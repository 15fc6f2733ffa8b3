package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// results is the memory of earlier runs: a file with one JSON object a line for
// each row that was tried. A row counts as seen if all of its tests failed and
// neither the row, nor the files that it changes, nor those of its tests have
// changed since. What else of the tree has changed does not make it unseen.
type results struct {
	file  *os.File // nil: nothing is kept
	seen  map[string][]result
	tests testFiles
}

type kept struct {
	Row     string   `json:"row"` // SHA-256 of what the row means
	Results []result `json:"results"`
}

func openResults(path string) (*results, error) {
	r := &results{seen: map[string][]result{}, tests: testFiles{}}
	if path == "" {
		return r, nil
	}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading the results: %w", err)
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // an interrupted run may have left a part of a line
	for i, line := range bytes.Split(text[:whole], []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var k kept
		if err := json.Unmarshal(line, &k); err != nil {
			return nil, fmt.Errorf("reading the results: %s:%d: %w", path, i+1, err)
		}
		if allFailed(k.Results) {
			r.seen[k.Row] = k.Results
		} else {
			delete(r.seen, k.Row)
		}
	}
	r.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the results: %w", err)
	}
	if _, err := r.file.Seek(int64(whole), 0); err != nil {
		return nil, fmt.Errorf("opening the results: %w", err)
	}
	return r, nil
}

func allFailed(tests []result) bool {
	for _, r := range tests {
		if !r.Failed {
			return false
		}
	}
	return true
}

func (r *results) add(row string, tests []result) error {
	if r.file == nil {
		return nil
	}
	line, err := json.Marshal(kept{row, tests})
	if err != nil {
		return err
	}
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("keeping a result: %w", err)
	}
	return nil
}

func (r *results) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// meaning is a hash of a row, of the files that it changes as they are without
// the control, and of the files of its tests.
func (r *results) meaning(root string, c control) (string, error) {
	files, err := c.changed(root)
	if err != nil {
		return "", err
	}
	tests, err := r.tests.of(root, c)
	if err != nil {
		return "", err
	}
	for _, name := range tests {
		if files[name], err = os.ReadFile(filepath.Join(root, name)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(struct { // maps are written in the order of their keys
		Package string
		Tests   []string
		Files   map[string][]byte
	}{c.Package, c.Tests, files})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
