package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/macos"
	"github.com/yett-broker/yett/internal/macos/system"
)

// ofSystem are the checks of what only macOS has.
func ofSystem() []trial {
	return []trial{
		{"symbols", trySymbols},
		{"clock: goes on while the machine sleeps", func(context.Context, *setting) (string, error) {
			var t unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
				return "", fmt.Errorf("CLOCK_MONOTONIC: %w", err)
			}
			return "CLOCK_MONOTONIC; that it counts sleep is clock_gettime(3)'s word", nil
		}},
		{"token: of this process, by its number and by a socket", tryToken},
		{"token: an exec changes it", tryTokenAfterExec},
		{"token: another user of the socket shows in it", tryTokenOfShared},
		{"kqueue: an exec and an exit are told", tryKqueue},
		{"code: the kernel, the framework and the file agree", tryCode},
		{"code: a requirement for other code is refused", tryOtherRequirement},
		{"code: another program's requirement is refused", tryAppleProgram},
		{"code: node is named, if it is there", tryNode},
		{"launchd: no socket where it did not start us", tryLaunchd},
		{"launchd: the socket of a job is taken over", tryLaunchdJob},
		{"sleep: is told before it comes", trySleep},
		{"screen: its lock is known", tryScreen},
	}
}

func open() (*system.Kernel, *system.Code, error) {
	k, err := system.OpenKernel(system.LibSystem)
	if err != nil {
		return nil, nil, err
	}
	c, err := system.OpenCode(system.CoreFoundation, system.Security)
	return k, c, err
}

func trySymbols(context.Context, *setting) (string, error) {
	if _, _, err := open(); err != nil {
		return "", err
	}
	n := 0
	for _, list := range system.Symbols() {
		n += len(list)
	}
	return fmt.Sprintf("all %d", n), nil
}

func tryToken(context.Context, *setting) (string, error) {
	k, _, err := open()
	if err != nil {
		return "", err
	}
	byNumber, err := k.TokenOf(os.Getpid())
	if err != nil {
		return "", err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	bySocket, err := k.PeerToken(pair[0])
	if err != nil {
		return "", err
	}
	if byNumber != bySocket || byNumber.PID() != os.Getpid() {
		return "", fmt.Errorf("%v (%x) and %v (%x)", byNumber, byNumber[:], bySocket, bySocket[:])
	}
	return byNumber.String(), nil
}

func tryCode(_ context.Context, s *setting) (string, error) {
	k, c, err := open()
	if err != nil {
		return "", err
	}
	t, err := k.TokenOf(os.Getpid())
	if err != nil {
		return "", err
	}
	flags, signature, err := system.Identify(k, c, t)
	if err != nil {
		return "", fmt.Errorf("flags %#x: %w", uint32(flags), err)
	}
	f, err := os.Open(s.program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	all, err := macos.ReadCode(f, st.Size())
	if err != nil {
		return "", err
	}
	for _, code := range all {
		if code.CDHash == signature.CDHash {
			if err := code.Verify(); err != nil {
				return "", err
			}
			return fmt.Sprintf("%s, %q, %s, flags %#x", signature.Signer, signature.Identifier, signature.CDHash, uint32(flags)), nil
		}
	}
	return "", fmt.Errorf("the file has no code %s", signature.CDHash)
}

func tryOtherRequirement(context.Context, *setting) (string, error) {
	k, c, err := open()
	if err != nil {
		return "", err
	}
	t, err := k.TokenOf(os.Getpid())
	if err != nil {
		return "", err
	}
	text, err := macos.Signature{Signer: macos.SignedByNobody, CDHash: macos.CDHash{1}}.Requirement()
	if err != nil {
		return "", err
	}
	return refusal(c, t, text)
}

// refusal wants the framework to say that live code does not satisfy a text.
func refusal(c *system.Code, t macos.Token, text string) (string, error) {
	_, _, err := c.Prove(t, text)
	var status *system.StatusError
	if !errors.As(err, &status) || status.Code != system.StatusRequirementFailed {
		return "", fmt.Errorf("the framework says %v", err)
	}
	return status.Error(), nil
}

// tryAppleProgram holds this program against a requirement that only a program
// of the system satisfies.
func tryAppleProgram(context.Context, *setting) (string, error) {
	k, c, err := open()
	if err != nil {
		return "", err
	}
	t, err := k.TokenOf(os.Getpid())
	if err != nil {
		return "", err
	}
	return refusal(c, t, `anchor apple and identifier "com.apple.sleep"`)
}
