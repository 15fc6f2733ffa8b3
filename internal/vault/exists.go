package vault

import (
	"os"
	"path/filepath"

	"github.com/yett-broker/yett/internal/durable"
)

// Exists reports whether dir holds a vault, or the previous generation of one:
// Create would refuse. It opens nothing.
func Exists(dir string) bool {
	for _, name := range []string{FileName, FileName + durable.Previous} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}
