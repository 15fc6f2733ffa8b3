package endpoint

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/macos/system"
)

// launchdLabel begins the label of the broker's job, which launchd gives to
// what it starts.
const launchdLabel = "io.github.yett-broker."

// Inherited returns the listening socket that launchd made, or nil where
// launchd did not start this process.
func Inherited() (*os.File, error) {
	label := os.Getenv("XPC_SERVICE_NAME")
	os.Unsetenv("XPC_SERVICE_NAME")
	if !strings.HasPrefix(label, launchdLabel) {
		return nil, nil
	}
	kernel, err := system.OpenKernel(system.LibSystem)
	if err != nil {
		return nil, err
	}
	fds, err := kernel.LaunchSockets(InheritedName)
	if err != nil {
		return nil, &InheritedError{Why: err.Error()}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if len(fds) != 1 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, &InheritedError{Why: fmt.Sprintf("launchd passed %d sockets; it must be one", len(fds))}
	}
	return os.NewFile(uintptr(fds[0]), InheritedName), nil
}

// judgePassed says what is wrong with a passed descriptor. Who made it cannot
// be asked; the private directory and its node are judged afterwards.
func judgePassed(f *os.File, path string, _ int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	why := ""
	err = raw.Control(func(fd uintptr) { why = wrongWith(int(fd), path) })
	if err == nil && why != "" {
		return &InheritedError{Why: why}
	}
	return err
}

func wrongWith(fd int, path string) string {
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return "it is no stream socket"
	}
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 {
		return "it does not listen"
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Sprintf("its address cannot be read: %v", err)
	}
	if at, ok := bound.(*unix.SockaddrUnix); !ok || at.Name != path {
		return "it is not bound at " + path
	}
	return ""
}
