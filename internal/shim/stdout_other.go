//go:build !linux

package shim

import (
	"os"

	"golang.org/x/sys/unix"
)

// pointAt makes descriptor fd lead where target leads.
func pointAt(fd int, target *os.File) error { return unix.Dup2(int(target.Fd()), fd) }
