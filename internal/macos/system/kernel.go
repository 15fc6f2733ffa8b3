package system

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/yett-broker/yett/internal/macos"
)

// Numbers of calls (sys/un.h, sys/proc_info.h, mach/task_info.h).
const (
	solLocal         = 0
	localPeerToken   = 0x006
	procPidTBSDInfo  = 3
	maxPath          = 4096 // PROC_PIDPATHINFO_MAXSIZE
	taskAuditToken   = 15   // TASK_AUDIT_TOKEN
	tokenWords       = macos.TokenSize / 4
	maxSigningName   = 1024
	maxLaunchSockets = 16
)

// Kernel answers about live processes.
type Kernel struct {
	getsockopt, pidPath, pidInfo, csops uintptr // for SyscallN, which brings errno along

	taskNameForPID func(self uint32, pid int32, name *uint32) int32
	taskInfo       func(task uint32, flavor uint32, info *byte, count *uint32) int32
	portDeallocate func(self, port uint32) int32
	selfPort       uintptr
	launchActivate func(name *byte, fds **int32, count *uintptr) int32
	free           func(p unsafe.Pointer)
}

func (k *Kernel) bindings() []binding {
	return []binding{
		{"getsockopt", &k.getsockopt},
		{"proc_pidpath_audittoken", &k.pidPath},
		{"proc_pidinfo", &k.pidInfo},
		{"csops_audittoken", &k.csops},
		{"task_name_for_pid", &k.taskNameForPID},
		{"task_info", &k.taskInfo},
		{"mach_port_deallocate", &k.portDeallocate},
		{"mach_task_self_", &k.selfPort},
		{"launch_activate_socket", &k.launchActivate},
		{"free", &k.free},
	}
}

// OpenKernel opens libSystem, or a stand-in for it.
func OpenKernel(path string) (*Kernel, error) {
	l, err := open(path)
	if err != nil {
		return nil, err
	}
	k := &Kernel{}
	if err := l.bind(k.bindings()); err != nil {
		return nil, err
	}
	return k, nil
}

// errnoError names what failed, with the error number where SyscallN brings it
// along: on macOS it does.
func errnoError(call string, errno uintptr) error {
	if errno == 0 {
		return fmt.Errorf("%s: failed without an error number", call)
	}
	return fmt.Errorf("%s: %w", call, syscall.Errno(errno))
}

// failed reports whether a C function that returns an int returned less than 0.
func failed(r uintptr) bool { return int32(r) < 0 }

// PeerToken is the audit token of the process that used the other end of the
// unix socket fd last (LOCAL_PEERTOKEN, since macOS 11).
func (k *Kernel) PeerToken(fd int) (macos.Token, error) {
	var buf [macos.TokenSize]byte
	size := uint32(len(buf))
	r, _, errno := purego.SyscallN(k.getsockopt, uintptr(fd), solLocal, localPeerToken,
		uintptr(unsafe.Pointer(&buf)), uintptr(unsafe.Pointer(&size)))
	if failed(r) {
		return macos.Token{}, errnoError("LOCAL_PEERTOKEN", errno)
	}
	return macos.ParseToken(buf[:min(size, macos.TokenSize)])
}

// Path is where the program of the process was started from. It is for display.
func (k *Kernel) Path(t macos.Token) (string, error) {
	var buf [maxPath]byte
	r, _, errno := purego.SyscallN(k.pidPath, uintptr(unsafe.Pointer(&t)), uintptr(unsafe.Pointer(&buf)), maxPath)
	n := int(int32(r))
	if n <= 0 || n > maxPath {
		return "", errnoError("proc_pidpath_audittoken", errno)
	}
	return string(buf[:n]), nil
}

// Info is what the kernel keeps of the process with this number. Only the
// token says whether it is still the one that was meant: read it afterwards.
func (k *Kernel) Info(pid int) (macos.ProcessInfo, error) {
	var buf [macos.ProcessInfoSize]byte
	r, _, errno := purego.SyscallN(k.pidInfo, uintptr(pid), procPidTBSDInfo, 0, uintptr(unsafe.Pointer(&buf)), uintptr(len(buf)))
	if int32(r) <= 0 {
		return macos.ProcessInfo{}, errnoError("proc_pidinfo", errno)
	}
	return macos.ParseProcessInfo(buf[:min(int(int32(r)), len(buf))])
}

// TokenOf is the audit token that the process with this number has now. The
// kernel gives it for processes of the same account.
func (k *Kernel) TokenOf(pid int) (macos.Token, error) {
	self := **(**uint32)(unsafe.Pointer(&k.selfPort))
	var name uint32
	if code := k.taskNameForPID(self, int32(pid), &name); code != 0 {
		return macos.Token{}, fmt.Errorf("task_name_for_pid: Mach error %d", code)
	}
	defer k.portDeallocate(self, name)
	var buf [macos.TokenSize]byte
	count := uint32(tokenWords)
	if code := k.taskInfo(name, taskAuditToken, &buf[0], &count); code != 0 || count != tokenWords {
		return macos.Token{}, fmt.Errorf("TASK_AUDIT_TOKEN: Mach error %d, %d words", code, count)
	}
	t, err := macos.ParseToken(buf[:])
	if err == nil && t.PID() != pid {
		err = fmt.Errorf("%w: pid %d was asked for, the kernel names %d", macos.ErrToken, pid, t.PID())
	}
	return t, err
}

func (k *Kernel) signing(t macos.Token, operation uintptr, buf []byte) error {
	r, _, errno := purego.SyscallN(k.csops, uintptr(t.PID()), operation,
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(unsafe.Pointer(&t)))
	if int32(r) != 0 {
		return errnoError("csops_audittoken", errno)
	}
	return nil
}

// Signature is the code-signing flags of the live process and the names that
// its signature claims. For a program without a signature the status has no
// StatusSigned and the rest is empty.
func (k *Kernel) Signature(t macos.Token) (macos.Status, macos.Signature, error) {
	var flags [4]byte
	if err := k.signing(t, macos.OpStatus, flags[:]); err != nil {
		return 0, macos.Signature{}, err
	}
	status := macos.Status(uint32(flags[0]) | uint32(flags[1])<<8 | uint32(flags[2])<<16 | uint32(flags[3])<<24)
	if status&macos.StatusSigned == 0 {
		return status, macos.Signature{Signer: macos.SignerUnsigned}, nil
	}
	var hash [macos.CDHashSize]byte
	if err := k.signing(t, macos.OpCDHash, hash[:]); err != nil {
		return status, macos.Signature{}, fmt.Errorf("its code-directory hash: %w", err)
	}
	s := macos.Signature{}
	var err error
	if s.CDHash, err = macos.ParseCDHash(hash[:]); err != nil {
		return status, macos.Signature{}, err
	}
	if s.Identifier, err = k.signingName(t, macos.OpIdentity); err != nil {
		return status, macos.Signature{}, fmt.Errorf("its identifier: %w", err)
	}
	if status&(macos.StatusAdHoc|macos.StatusPlatformBinary) == 0 { // these have none
		if s.Team, err = k.signingName(t, macos.OpTeamID); err != nil {
			return status, macos.Signature{}, fmt.Errorf("its team: %w", err)
		}
	}
	s.Signer, err = macos.Judge(status, s.Team)
	return status, s, err
}

func (k *Kernel) signingName(t macos.Token, operation uintptr) (string, error) {
	var buf [maxSigningName]byte
	if err := k.signing(t, operation, buf[:]); err != nil {
		return "", err
	}
	return macos.ParseName(buf[:])
}

// LaunchSockets takes over the sockets that launchd made under this name
// (launch_activate_socket(3)). ESRCH: launchd did not start this process;
// ENOENT: no such name; EALREADY: they were taken before.
func (k *Kernel) LaunchSockets(name string) ([]int, error) {
	text := append([]byte(name), 0)
	var list *int32
	var count uintptr
	if errno := k.launchActivate(&text[0], &list, &count); errno != 0 {
		return nil, fmt.Errorf("launch_activate_socket: %w", syscall.Errno(errno))
	}
	runtime.KeepAlive(text)
	if list == nil {
		return nil, errors.New("launch_activate_socket: no list")
	}
	defer k.free(unsafe.Pointer(list))
	if count == 0 || count > maxLaunchSockets {
		return nil, fmt.Errorf("launch_activate_socket: %d sockets", count)
	}
	var fds []int
	for _, fd := range unsafe.Slice(list, count) {
		fds = append(fds, int(fd))
	}
	return fds, nil
}
