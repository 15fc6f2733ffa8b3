//go:build !linux && !darwin

package httpexec

import "syscall"

// unsent cannot be told here, so it is assumed.
func unsent(syscall.RawConn) bool { return true }
