package peer

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Socket is the kernel's account of one TCP socket of this machine.
type Socket struct {
	UID   int    // of whoever made it
	Inode uint64 // 0 once nobody holds it any more
}

// tcpListen is the state of a listening socket in /proc/net/tcp.
const tcpListen = "0A"

// TCPSocket finds the socket with these two ends, seen from its own side. For a
// listening socket remote is the zero value, and so may be local's address.
func TCPSocket(local, remote netip.AddrPort) (Socket, error) {
	name := "/proc/self/net/tcp"
	if local.Addr().Is6() && !local.Addr().Is4In6() {
		name = "/proc/self/net/tcp6"
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return Socket{}, fmt.Errorf("reading the kernel's list of sockets: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range lines[1:] {
		if s, ok := socketOfLine(line, local, remote); ok {
			return s, nil
		}
	}
	return Socket{}, noAttribution("the kernel knows no socket from %s to %s", local, remote)
}

// socketOfLine reads a line of /proc/net/tcp, if it is of that socket.
func socketOfLine(line string, local, remote netip.AddrPort) (Socket, bool) {
	f := strings.Fields(line)
	if len(f) < 10 || !local.IsValid() {
		return Socket{}, false
	}
	from, ok := parseSocketAddr(f[1])
	if !ok || from != local {
		return Socket{}, false
	}
	to, ok := parseSocketAddr(f[2])
	if !ok || remote.IsValid() != (f[3] != tcpListen) || remote.IsValid() && to != remote {
		return Socket{}, false
	}
	uid, err := strconv.Atoi(f[7])
	inode, err2 := strconv.ParseUint(f[9], 10, 64)
	return Socket{UID: uid, Inode: inode}, err == nil && err2 == nil
}

// parseSocketAddr reads "0100007F:1F90": each 32 bits of the address in the
// machine's order, the port as a number.
func parseSocketAddr(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, uint16(n)), ok
}

// maxHolders bounds how many processes that hold one socket are looked at.
const maxHolders = 16

// Holders takes hold of the processes that have the socket open, as far as this
// account may look: a program that hides itself is not found. The caller closes
// them.
func (s Socket) Holders() []*Process {
	if s.Inode == 0 {
		return nil
	}
	want := fmt.Sprintf("socket:[%d]", s.Inode)
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []*Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || len(all) == maxHolders || !holds(pid, want) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if err != nil {
			continue
		}
		p, err := hold(fd)
		if err != nil {
			continue
		}
		if !holds(pid, want) { // the number may have come to mean another process
			p.Close()
			continue
		}
		all = append(all, p)
	}
	return all
}

// holds reports whether a process has a descriptor of that name.
func holds(pid int, want string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, n := range names {
		if to, err := os.Readlink(filepath.Join(dir, n)); err == nil && to == want {
			return true
		}
	}
	return false
}
