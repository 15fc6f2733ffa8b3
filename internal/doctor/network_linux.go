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
// account are counted of which no process that can be seen is the owner.
func networkFinding(pid int) Finding {
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
	if len(listening) == 0 {
		return good(check, "no TCP socket of this account listens that could be the broker's")
	}
	var where []string
	for _, address := range listening {
		where = append(where, address)
	}
	slices.Sort(where)
	return weaker(check, fmt.Sprintf("%d TCP sockets listen that are the broker's or another hidden program's: port %s", len(where), strings.Join(where, ", ")), HiddenListener)
}

// listeners are the ports of an account's listening TCP sockets by inode.
func listeners(uid int) (map[string]string, error) {
	const listen = "0A"
	all := map[string]string{}
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
			_, hex, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				return nil, fmt.Errorf("reading /proc/self/net/%s: %w", name, err)
			}
			all[f[9]] = strconv.FormatUint(port, 10)
		}
	}
	return all, nil
}
