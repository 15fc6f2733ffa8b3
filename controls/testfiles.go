package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// testFiles knows in which file each test of a package stands.
type testFiles map[string]map[string]string

// of returns the files of a row's tests, from the module's root.
func (f testFiles) of(root string, c control) ([]string, error) {
	if f[c.Package] == nil {
		var err error
		if f[c.Package], err = readTests(root, c.Package); err != nil {
			return nil, err
		}
	}
	var files []string
	for _, name := range c.Tests {
		file, ok := f[c.Package][name]
		if !ok {
			return nil, fmt.Errorf("%s has no %s", c.Package, name)
		}
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files, nil
}

// readTests returns the file of each test of a package, on every system.
func readTests(root, pkg string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, p := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("reading the tests of %s: %w", pkg, err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				files[fn.Name.Name] = path.Join(filepath.ToSlash(pkg), filepath.Base(p))
			}
		}
	}
	return files, nil
}
