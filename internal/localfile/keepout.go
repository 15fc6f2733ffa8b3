package localfile

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Apart names directories that are kept out of, by absolute canonical paths. They
// may be missing.
type Apart struct {
	Trees       []string // with everything below
	Directories []string // with the files that lie in them
}

// ErrKeptOut means that a path lies in a directory that is kept out of.
var ErrKeptOut = errors.New("the path lies in a directory from and to which nothing is copied")

// mostAbove bounds the way up from a directory.
const mostAbove = 4096

// node is a file, whatever it is called.
type node struct{ device, inode uint64 }

// refuse refuses a file in an opened directory where that, or for a tree one
// above it, is kept out of: by its name, which may be missing, or as the same
// directory by another name.
func (a Apart) refuse(d *os.File, file string) error {
	directories, err := nodesOf(a.Directories)
	if err != nil {
		return err
	}
	trees, err := nodesOf(a.Trees)
	if err != nil {
		return err
	}
	for _, dir := range a.Trees {
		if file == dir || strings.HasPrefix(file, dir+"/") {
			return ErrKeptOut
		}
	}
	way, last := ".", node{}
	for range mostAbove {
		n, err := nodeFrom(d, way)
		switch {
		case err != nil:
			return fmt.Errorf("looking above %s: %w", file, err)
		case trees[n], way == "." && directories[n]:
			return ErrKeptOut
		case n == last: // the root is above itself
			return nil
		}
		way, last = way+"/..", n
	}
	return fmt.Errorf("%s lies too deep", file)
}

func nodesOf(dirs []string) (map[node]bool, error) {
	nodes := map[node]bool{}
	for _, dir := range dirs {
		n, there, err := nodeOf(dir)
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", dir, err)
		}
		if there {
			nodes[n] = true
		}
	}
	return nodes, nil
}
