//go:build !linux

package peer

import "net"

// Number is not known on this system.
func Number(*net.UnixConn) (int, error) { return 0, ErrUnsupported }
