package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// networkFinding looks for a listener of the broker's on the network. The
// kernel hides a broker's descriptors from its account, so the listeners of the
// account are counted of which no process that can be seen is the owner. The
// console's port is the broker's own, if it listens on loopback alone.
func networkFinding(pid int, console string) Finding {
	const check = "network"
	listening, err := listeners(unix.Getuid())
	if err != nil {
		return weaker(check, err.Error(), SystemUnknown)
	}
	own := fmt.Sprintf("/proc/%d/fd", pid)
	dirs, _ := filepath.Glob("/proc/[0-9]*/fd") // the pattern is ours
	for _, dir := range dirs {
		names, err := os.ReadDir(dir)
		if err != nil {
			continue // another account's, hidden, or gone
		}
		for _, n := range names {
			target, err := os.Readlink(filepath.Join(dir, n.Name()))
			if err != nil || !strings.HasPrefix(target, "socket:[") || dir == own {
				continue
			}
			delete(listening, strings.Trim(target, "socket:[]"))
		}
	}
	served := 0
	for inode, l := range listening {
		if console != "" && l.loopback && l.port == console {
			served++
			delete(listening, inode)
		}
	}
	switch {
	case len(listening) > 0:
	case served > 0:
		return good(check, "nothing but the console listens, on loopback, port "+console)
	default:
		return good(check, "no TCP socket of this account listens that could be the broker's")
	}
	var where []string
	for _, l := range listening {
		where = append(where, l.port)
	}
	slices.Sort(where)
	where = slices.Compact(where)
	return weaker(check, "what listens beside the console may be the broker's or another hidden program's: TCP port "+strings.Join(where, ", "), HiddenListener)
}

// listener is a TCP socket that listens.
type listener struct {
	port     string
	loopback bool
}

// loopbacks are 127.0.0.1 and ::1 in the kernel's words, on a machine of either
// order of bytes.
var loopbacks = []string{"0100007F", "7F000001", "00000000000000000000000001000000", "00000000000000000000000000000001"}

// listeners are an account's listening TCP sockets by inode.
func listeners(uid int) (map[string]listener, error) {
	const listen = "0A"
	all := map[string]listener{}
	for _, name := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/self/net/" + name)
		if os.IsNotExist(err) && name == "tcp6" {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			// sl local remote st queues timer retransmissions uid timeout inode
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listen || f[7] != strconv.Itoa(uid) {
				continue
			}
			address, hex, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				return nil, fmt.Errorf("reading /proc/self/net/%s: %w", name, err)
			}
			all[f[9]] = listener{strconv.FormatUint(port, 10), slices.Contains(loopbacks, address)}
		}
	}
	return all, nil
}
