package endpoint

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// homeOf is the home directory of uid in /etc/passwd. The standard library's
// lookup falls back to HOME and USER where it is built without cgo, so it is
// not used.
func homeOf(uid int) (string, error) {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return homeIn(f, uid)
}

func homeIn(passwd io.Reader, uid int) (string, error) {
	lines := bufio.NewScanner(passwd)
	for lines.Scan() {
		// name:password:uid:gid:gecos:home:shell
		fields := strings.Split(lines.Text(), ":")
		if len(fields) != 7 || fields[0] == "" || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if n, err := strconv.ParseUint(fields[2], 10, 32); err != nil || int(n) != uid {
			continue
		}
		home := fields[5]
		if !filepath.IsAbs(home) || strings.ContainsRune(home, 0) {
			return "", fmt.Errorf("the account's entry in /etc/passwd names the home directory %q, which is not an absolute path", home)
		}
		return filepath.Clean(home), nil
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("reading /etc/passwd: %w", err)
	}
	return "", fmt.Errorf("/etc/passwd has no entry for it")
}
