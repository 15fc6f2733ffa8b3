//go:build !linux

package peer

import "net/netip"

// Socket is the kernel's account of one TCP socket of this machine.
type Socket struct {
	UID   int
	Inode uint64
}

// TCPSocket finds the socket with these two ends, seen from its own side.
func TCPSocket(_, _ netip.AddrPort) (Socket, error) { return Socket{}, errMissing }

// Holders takes hold of the processes that have the socket open.
func (s Socket) Holders() []*Process { return nil }
