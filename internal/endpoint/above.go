package endpoint

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// CheckAbove refuses a location whose data directory no broker would use
// because of a directory above it. What is missing there is made private later,
// and makes nothing here.
func CheckAbove(loc Location) error {
	uid, err := account()
	if err != nil {
		return err
	}
	for path := filepath.Dir(loc.Home); path != "/"; path = filepath.Dir(path) {
		d, err := openDirectory(path, uid, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			d.close()
		}
		return err
	}
	return nil
}
