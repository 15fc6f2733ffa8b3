package peer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// account is everything that is read about a process at once.
type account struct {
	evidence action.Process
	comm     string
	initial  bool // pid 1 of its pid namespace
}

// gather reads the evidence of the process behind fd. An exec in the middle
// would mix two programs, so the program is read first and last.
func gather(fd int) (account, error) {
	for range 3 {
		a, err := gatherOnce(fd)
		if !errors.Is(err, ErrChanged) {
			return a, err
		}
	}
	return account{}, noAttribution("it keeps changing while it is looked at")
}

func gatherOnce(fd int) (account, error) {
	id, err := identify(fd)
	if err != nil {
		return account{}, err
	}
	before, a, readErr := read(id)
	after, imageErr := readImage(id.pid)
	again, idErr := identify(fd) // polls last: alive now means alive all the while
	if err := errors.Join(readErr, imageErr, idErr); err != nil {
		return account{}, noAttribution("%w", err)
	}
	if !before.same(after) || again.uid != id.uid || again.gid != id.gid {
		return account{}, ErrChanged
	}
	inode, err := pidfsInode(fd)
	if err != nil {
		return account{}, noAttribution("%w", err)
	}
	a.evidence.Kernel.PidfsInode = inode
	return a, nil
}

// read collects the facts of id.pid; they mean something only if the pidfd
// polls alive afterwards.
func read(id identity) (image, account, error) {
	img, err := readImage(id.pid)
	if err != nil {
		return image{}, account{}, err
	}
	stat, err := readStat(id.pid)
	if err != nil {
		return image{}, account{}, fmt.Errorf("reading its stat: %w", err)
	}
	status, err := readStatus(id.pid)
	if err != nil {
		return image{}, account{}, fmt.Errorf("reading its status: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return image{}, account{}, err
	}
	if otherUserNamespace(id.pid) {
		return image{}, account{}, errors.New("it is in another user namespace")
	}
	container := otherNamespace(id.pid, status.nspid)
	if img.state == exeFile && !container && img.elsewhere() {
		img.state = exeReplaced
	}
	a := account{comm: stat.comm, initial: status.nspid[len(status.nspid)-1] == 1}
	a.evidence.Kernel = action.KernelFacts{
		PID: id.pid, StartTicks: stat.startTicks, BootID: boot,
		UID: id.uid, GID: id.gid, PPID: id.ppid,
		ExePath: img.path, ExeDevice: img.dev, ExeInode: img.ino, ExeState: img.state,
		TTY: ttyName(stat.tty), Cgroup: readCgroup(id.pid), TracerPID: status.tracer, Container: container,
	}
	if img.state != exeHidden {
		a.evidence.Filesystem = action.FileFacts{Size: img.size, Owner: img.owner, Mode: fmt.Sprintf("%04o", img.mode)}
	}
	a.evidence.Claimed = readClaims(id.pid, img.path)
	return img, a, nil
}

var bootID = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
})

// otherUserNamespace compares the namespace links, and for a hidden process,
// whose links cannot be read, the mapping of user ids, which can.
func otherUserNamespace(pid int) bool {
	if differ, known := namespaceDiffers(pid, "user"); known {
		return differ
	}
	theirs, err1 := readCapped(procPath(pid, "uid_map"), 16<<10)
	ours, err2 := readCapped("/proc/self/uid_map", 16<<10)
	return err1 != nil || err2 != nil || !bytes.Equal(theirs, ours)
}

// otherNamespace reports a pid or mount namespace that is not ours. A process
// in a pid namespace below ours has more than one id even when it is hidden.
func otherNamespace(pid int, nspid []int) bool {
	if len(nspid) > 1 {
		return true
	}
	for _, kind := range []string{"pid", "mnt"} {
		if differ, known := namespaceDiffers(pid, kind); known && differ {
			return true
		}
	}
	return false
}

func namespaceDiffers(pid int, kind string) (differ, known bool) {
	theirs, err1 := os.Readlink(procPath(pid, "ns/"+kind))
	ours, err2 := os.Readlink("/proc/self/ns/" + kind)
	return theirs != ours, err1 == nil && err2 == nil
}

const (
	claimsCap  = 16 << 10
	claimsWait = 250 * time.Millisecond
)

// claimSlots bounds the reads of argv that may be stuck at once: argv lies in
// the memory of the process, which can be made to fault for ever.
var claimSlots = make(chan struct{}, 4)

// readClaims reads what the process chose. Nothing depends on it, so what
// does not come in time is left out.
func readClaims(pid int, exe string) action.ProcClaims {
	var c action.ProcClaims
	c.Cwd, _ = os.Readlink(procPath(pid, "cwd"))

	timer := time.NewTimer(claimsWait)
	defer timer.Stop()
	select {
	case claimSlots <- struct{}{}:
		text := make(chan []byte, 1)
		go func() {
			defer func() { <-claimSlots }()
			argv, _ := readCapped(procPath(pid, "cmdline"), claimsCap)
			text <- argv
		}()
		select {
		case argv := <-text:
			c.Argv = splitArgv(argv)
		case <-timer.C:
		}
	case <-timer.C:
	}
	if exe != "" {
		c.Runtime, c.Script = runtimeOf(exe, c.Argv)
	}
	return c
}

func splitArgv(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
