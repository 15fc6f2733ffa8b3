package durable

import (
	"errors"
	"os"
)

// disk is the file system as writeFile sees it: each step that can fail by
// itself, or be the last one before a crash. The order of the calls is what
// makes a replacement durable. Tests put a failing disk here.
type disk interface {
	create(path string) (*os.File, error)
	chmod(f *os.File, mode os.FileMode) error
	write(f *os.File, data []byte) (int, error)
	sync(f *os.File) error
	link(old, new string) error
	rename(old, new string) error
	remove(path string) error
	syncDir(path string) error
}

type realDisk struct{}

func (realDisk) create(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}
func (realDisk) chmod(f *os.File, mode os.FileMode) error   { return f.Chmod(mode) }
func (realDisk) write(f *os.File, data []byte) (int, error) { return f.Write(data) }
func (realDisk) sync(f *os.File) error                      { return f.Sync() }
func (realDisk) link(old, new string) error                 { return os.Link(old, new) }
func (realDisk) rename(old, new string) error               { return os.Rename(old, new) }
func (realDisk) remove(path string) error                   { return os.Remove(path) }

func (realDisk) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
