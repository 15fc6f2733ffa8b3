package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
)

// systemFindings are about what the kernel gives and keeps.
func systemFindings(r *Running) []Finding {
	pid := os.Getpid()
	if r != nil {
		pid = r.PID
	}
	return []Finding{kernelFinding(), ptraceFinding("/proc/sys/kernel/yama/ptrace_scope"), namespaceFinding(), watchFinding(), sandboxFinding(pid)}
}

func ptraceFinding(path string) Finding {
	scope, err := setting(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return weaker("ptrace_scope", "the kernel has no Yama: programs of this account may debug one another", PtraceOpen)
	case err != nil:
		return weaker("ptrace_scope", approval.Printable(err.Error()), SystemUnknown)
	case scope == "0":
		return weaker("ptrace_scope", "kernel.yama.ptrace_scope is 0: programs of this account may debug one another", PtraceOpen)
	}
	return good("ptrace_scope", "kernel.yama.ptrace_scope is "+approval.Printable(scope))
}

// namespaceFinding tries: the kernel has too many settings that decide it. No
// program runs in the namespace, since there is none of the name.
func namespaceFinding() Finding {
	const check = "user_namespaces"
	if unix.Getuid() == 0 {
		return weaker(check, "root may make every namespace, and have the kernel name another file as a process's program", AsRoot)
	}
	c := exec.Command("/proc/self/no-such-program")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	err := c.Start()
	switch {
	case err == nil: // there is no such program
		c.Process.Kill()
		c.Wait()
		return weaker(check, "it could not be told whether this account may make them", SystemUnknown)
	case !errors.Is(err, fs.ErrNotExist):
		return good(check, "this account may make none")
	}
	if held, err := setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); err == nil && held == "1" {
		return good(check, "this account may make them, but AppArmor gives no rights in them")
	}
	return weaker(check, "this account may make them: a program can have the kernel name another file as its program, "+
		"so that what a card says of a program is weaker", UserNamespaces)
}

// watchFinding takes one inotify watch, as the shim does, and gives it back.
func watchFinding() Finding {
	const check = "inotify"
	most, err := setting("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return weaker(check, approval.Printable(err.Error()), SystemUnknown)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return bad(check, "no inotify instance is left for this account: "+err.Error(), NoWatches)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, "/", unix.IN_DELETE_SELF); err != nil {
		return bad(check, fmt.Sprintf("no inotify watch is left for this account (%v; at most %s)", err, most), NoWatches)
	}
	return good(check, "watches are left, at most "+approval.Printable(most))
}

// sandboxFinding collects hints that the broker runs in something that takes
// rights away or shares the kernel with others.
func sandboxFinding(pid int) Finding {
	var hints []string
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Lstat(mark); err == nil {
			hints = append(hints, "a container ("+mark+")")
		}
	}
	if release, err := setting("/proc/sys/kernel/osrelease"); err == nil && strings.Contains(strings.ToLower(release), "microsoft") {
		hints = append(hints, "WSL")
	}
	status := procPath(pid, "status")
	if v, err := lineOf(status, "NoNewPrivs:"); err == nil && v == "1" {
		hints = append(hints, "no_new_privs")
	}
	if v, err := lineOf(status, "Seccomp:"); err == nil && v != "0" {
		hints = append(hints, "a seccomp filter")
	}
	if ids, err := setting(procPath(pid, "uid_map")); err == nil && strings.Join(strings.Fields(ids), " ") != "0 0 4294967295" {
		hints = append(hints, "a user namespace")
	}
	if path, _, _, err := endpoint.Installed(ownProgram); err == nil {
		var st unix.Statfs_t
		if unix.Statfs(filepath.Dir(path), &st) == nil && st.Flags&unix.ST_NOSUID != 0 {
			hints = append(hints, "a nosuid mount under the programs")
		}
	}
	if len(hints) == 0 {
		return good("sandbox", "no container, no WSL, no user namespace, no filter of system calls")
	}
	return weaker("sandbox", strings.Join(hints, ", "), Sandboxed)
}

func setting(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}
