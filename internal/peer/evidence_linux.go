package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/action"
)

// account is everything that is read about a process at once.
type account struct {
	evidence action.Process
	comm     string
	initial  bool // pid 1 of its pid namespace
	space    space
}

// gather reads the evidence of the process behind fd, which owns dir. An exec
// in the middle would mix two programs, so the program is read first and last.
func gather(fd int, dir procDir) (account, error) {
	for range 3 {
		a, err := gatherOnce(fd, dir)
		if !errors.Is(err, ErrChanged) {
			return a, err
		}
	}
	return account{}, noAttribution("it keeps changing while it is looked at")
}

func gatherOnce(fd int, dir procDir) (account, error) {
	id, err := identify(fd)
	if err != nil {
		return account{}, err
	}
	before, a, readErr := read(id, dir)
	var buf [maxSpace]byte
	a.space = bytes.Clone(dir.space(buf[:]))
	after, imageErr := dir.image()
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

// read collects the facts; they mean something only if the pidfd polls alive
// afterwards.
func read(id identity, dir procDir) (image, account, error) {
	img, err := dir.image()
	if err != nil {
		return image{}, account{}, err
	}
	stat, err := dir.stat()
	if err != nil {
		return image{}, account{}, err
	}
	status, err := dir.status()
	if err != nil {
		return image{}, account{}, err
	}
	boot, err := bootID()
	if err != nil {
		return image{}, account{}, err
	}
	if dir.otherUserNamespace() {
		return image{}, account{}, errors.New("it is in another user namespace")
	}
	container := dir.otherNamespace(status.nspid)
	if img.state == exeFile && !container && img.elsewhere() {
		img.state = exeReplaced
	}
	a := account{comm: stat.comm, initial: status.nspid[len(status.nspid)-1] == 1}
	a.evidence.Kernel = action.KernelFacts{
		PID: id.pid, StartTicks: stat.startTicks, BootID: boot,
		UID: id.uid, GID: id.gid, PPID: id.ppid,
		ExePath: img.path, ExeDevice: img.dev, ExeInode: img.ino, ExeState: img.state,
		TTY: ttyName(stat.tty), Cgroup: dir.cgroup(), TracerPID: status.tracer, Container: container,
	}
	if img.state != exeHidden {
		a.evidence.Filesystem = action.FileFacts{Size: img.size, Owner: img.owner, Mode: fmt.Sprintf("%04o", img.mode)}
	}
	a.evidence.Claimed = readClaims(dir, img.path)
	return img, a, nil
}

var bootID = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
})

// BootID names this boot of the system, as Kernel.BootID of every caller does.
func BootID() (string, error) { return bootID() }

// otherUserNamespace compares the namespace links, and for a hidden process,
// whose links cannot be read, the mapping of user ids, which can.
func (d procDir) otherUserNamespace() bool {
	if differ, known := d.namespaceDiffers("user"); known {
		return differ
	}
	theirs, err1 := d.read("uid_map", 16<<10)
	ours, err2 := os.ReadFile("/proc/self/uid_map")
	return err1 != nil || err2 != nil || !bytes.Equal(theirs, ours)
}

// otherNamespace reports a pid or mount namespace that is not ours. A process
// in a pid namespace below ours has more than one id even when it is hidden.
func (d procDir) otherNamespace(nspid []int) bool {
	if len(nspid) > 1 {
		return true
	}
	for _, kind := range []string{"pid", "mnt"} {
		if differ, known := d.namespaceDiffers(kind); known && differ {
			return true
		}
	}
	return false
}

func (d procDir) namespaceDiffers(kind string) (differ, known bool) {
	theirs, err1 := d.readlink("ns/" + kind)
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
func readClaims(dir procDir, exe string) action.ProcClaims {
	var c action.ProcClaims
	c.Cwd, _ = dir.readlink("cwd")

	timer := time.NewTimer(claimsWait)
	defer timer.Stop()
	select {
	case claimSlots <- struct{}{}:
		text := make(chan []byte, 1)
		// Opened here, since dir may be closed before a stuck read ends.
		cmdline, err := unix.Openat(int(dir), "cmdline", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		go func() {
			defer func() { <-claimSlots }()
			if err != nil {
				text <- nil
				return
			}
			f := os.NewFile(uintptr(cmdline), "cmdline")
			defer f.Close()
			argv, _ := io.ReadAll(io.LimitReader(f, claimsCap))
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
