//go:build !linux

package shim

import "golang.org/x/sys/unix"

// redirect makes descriptor to lead where from leads.
func redirect(from, to int) error { return unix.Dup2(from, to) }
