package endpoint

import (
	"os"
	"path/filepath"
	"strconv"
)

// Own are the directories where Yett keeps what is its own: those of this
// location and, wherever that is, those of the account's default one, with the
// record of what was installed and of the clients' configurations. Some may be
// missing.
func (l Location) Own() []string {
	dirs := []string{l.Home, filepath.Dir(l.Socket)}
	uid, err := account()
	if err != nil {
		return dirs // there is no default location then
	}
	dirs = append(dirs, filepath.Join("/run/user", strconv.Itoa(uid), "yett"))
	if home, err := homeOf(uid); err == nil {
		dirs = append(dirs, filepath.Join(home, ".local/share/yett"), filepath.Join(home, ".local/state/yett"))
	}
	return dirs
}

// Programs is the directory of the running program, where the installed ones
// lie beside it.
func Programs() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Dir(self), nil
}
