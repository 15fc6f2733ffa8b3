//go:build hosts && linux

package hosts

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leaveNetwork puts this thread, which starts the account's tests, into a
// network namespace of its own that has nothing but loopback. Only root may;
// for others offline is what the hosts' proxies make of it.
func leaveNetwork(string) error {
	if os.Getuid() != 0 {
		return nil
	}
	runtime.LockOSThread() // for good: whatever is started from here is offline
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("leaving the network: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("leaving the network: %w", err)
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("leaving the network: %w", err)
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(up))); errno != 0 {
		return fmt.Errorf("bringing loopback up: %w", errno)
	}
	return os.Setenv(envOffline, "1")
}

// envOffline tells the account's tests that they must be offline.
const envOffline = "YETT_HOSTS_OFFLINE"

// TestHosts_Offline: where root started the tests, no network but loopback is
// there for them.
func TestHosts_Offline(t *testing.T) {
	if os.Getenv(envOffline) == "" {
		t.Log("not started as root: the hosts' proxies lead nowhere instead")
		return
	}
	if os.Getuid() == 0 {
		t.Error("these tests run as root")
	}
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		addresses, _ := i.Addrs()
		if i.Flags&net.FlagLoopback == 0 && (i.Flags&net.FlagUp != 0 || len(addresses) > 0) {
			t.Errorf("the interface %s is there, with %v", i.Name, addresses)
		}
	}
}
