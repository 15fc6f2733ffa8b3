package durable

import (
	"fmt"
	"io"
	"os"
)

// Zeros makes f, from its beginning on, size bytes of zeros that are on the
// disk: written, and not only reserved, so that a later Datasync of what was
// written over them has no extents of the file to convert.
func Zeros(f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("making room in %s: %w", f.Name(), err)
	}
	zeros := make([]byte, min(size, 1<<20))
	for off := int64(0); off < size; off += int64(len(zeros)) {
		part := zeros[:min(int64(len(zeros)), size-off)]
		n, err := f.WriteAt(part, off)
		if err == nil && n < len(part) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return fmt.Errorf("making room in %s: %w", f.Name(), err)
		}
	}
	return f.Sync()
}

// SyncDir returns once the names in a directory would survive a power cut.
func SyncDir(path string) error { return realDisk{}.syncDir(path) }
