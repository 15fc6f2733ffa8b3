package endpoint

import (
	"fmt"
	"os/user"
	"path/filepath"
	"strconv"
)

// homeOf asks getpwuid_r, which os/user calls on macOS with and without cgo:
// accounts are not in /etc/passwd there.
func homeOf(uid int) (string, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(u.HomeDir) {
		return "", fmt.Errorf("the account's home directory %q is not an absolute path", u.HomeDir)
	}
	return filepath.Clean(u.HomeDir), nil
}
