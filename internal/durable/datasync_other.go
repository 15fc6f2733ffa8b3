//go:build !linux

package durable

import "os"

// Datasync returns once the content of f would survive a power cut. On macOS
// Sync asks the drive itself (F_FULLFSYNC), which nothing less does.
func Datasync(f *os.File) error { return f.Sync() }
