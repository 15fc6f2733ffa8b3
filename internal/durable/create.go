package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CreateFile makes a new file of mode 0600 with data and returns once it would
// survive a power cut. It replaces nothing: where path is taken the error is
// fs.ErrExist. It needs no second name for the file, so it works on what
// backups are carried away on, too. A crash may leave a part of the file; any
// other failure leaves none.
func CreateFile(path string, data []byte) error { return createFile(realDisk{}, path, data) }

func createFile(d disk, path string, data []byte) error {
	f, err := d.create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(d, f, data, 0o600), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", filepath.Base(path), err), d.remove(path))
	}
	if err := d.syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("syncing the directory after writing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// KeepAs gives the file at path a second name, which must be free. The caller
// syncs the directory, by replacing path.
func KeepAs(path, name string) error {
	if err := os.Link(path, name); err != nil {
		return fmt.Errorf("keeping %s aside: %w", filepath.Base(path), err)
	}
	return nil
}
