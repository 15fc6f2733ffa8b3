//go:build !linux

package sshexec

import "net"

// promptly does nothing: other systems have no such option, and delay less.
func promptly(net.Conn) func() { return func() {} }
