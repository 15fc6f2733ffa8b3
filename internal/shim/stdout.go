package shim

import (
	"os"

	"golang.org/x/sys/unix"
)

// takeStdout returns a private, close-on-exec descriptor of standard output
// and points the descriptor that it had at standard error.
func takeStdout(stdout, stderr *os.File) (*os.File, error) {
	private := -1
	err := withDescriptors(stdout, stderr, func(out, errs int) (err error) {
		if private, err = unix.FcntlInt(uintptr(out), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return err
		}
		return redirect(errs, out)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(private), "protocol"), nil
}

// withDescriptors lends two descriptors. File.Fd would change the mode of
// descriptions that are shared with the agent.
func withDescriptors(a, b *os.File, use func(a, b int) error) error {
	ra, err := a.SyscallConn()
	if err != nil {
		return err
	}
	rb, err := b.SyscallConn()
	if err != nil {
		return err
	}
	var uerr error
	err = ra.Control(func(fa uintptr) {
		if cerr := rb.Control(func(fb uintptr) { uerr = use(int(fa), int(fb)) }); cerr != nil {
			uerr = cerr
		}
	})
	if err != nil {
		return err
	}
	return uerr
}
