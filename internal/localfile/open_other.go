//go:build !linux && !darwin

package localfile

import (
	"errors"
	"io/fs"
	"os"
)

// errNotHere refuses: how a way that follows no link is opened here is not known.
var errNotHere = errors.New("files are not copied on this system")

func openDirectory(string) (*os.File, error)            { return nil, errNotHere }
func directoryBelow(*os.File, string) (*os.File, error) { return nil, errNotHere }
func openBelow(*os.File, string) (*os.File, error)      { return nil, errNotHere }
func createIn(*os.File, string) (*os.File, error)       { return nil, errNotHere }
func modeIn(*os.File, string) (fs.FileMode, error)      { return 0, errNotHere }
func renameIn(*os.File, string, string, bool) error     { return errNotHere }
func removeIn(*os.File, string) error                   { return errNotHere }
func names(fs.FileInfo) uint64                          { return 0 }
func nodeOf(string) (node, bool, error)                 { return node{}, false, errNotHere }
func nodeFrom(*os.File, string) (node, error)           { return node{}, errNotHere }
