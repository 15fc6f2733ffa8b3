package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guest is the machine's init. It does not return.
func guest() {
	if err := furnish(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	if err := reapUntilDone(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1) // which the kernel answers with a panic, and that with a reboot
}

// furnish makes what programs expect of a system.
func furnish() error {
	unix.Umask(0o022)
	var failed []error
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"devpts", "/dev/pts", "mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "mode=1777"}, {"tmpfs", "/tmp", "mode=1777"}, {"tmpfs", "/run", "mode=755"}, {"tmpfs", "/home", "mode=755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			failed = append(failed, err)
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			failed = append(failed, fmt.Errorf("mounting %s: %w", m.at, err))
		}
	}
	for name, to := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2"} {
		failed = append(failed, os.Symlink(to, name))
	}
	failed = append(failed, os.Mkdir("/home/ada", 0o700), os.Chown("/home/ada", account, account), loopbackUp())
	return errors.Join(failed...)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// reapUntilDone starts the worker and takes in whatever process dies, as an
// init must: tests make orphans and look whether they are gone.
func reapUntilDone() error {
	worker := exec.Command("/proc/self/exe", workArgument, "/jobs.json")
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	if err := worker.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == worker.Process.Pid || (err != nil && err != unix.EINTR) {
			return err
		}
	}
}

// work runs the jobs of a list one after the other.
func work(list string) int {
	port, err := openPort("/dev/ttyS1")
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	defer port.Close()
	text, err := os.ReadFile(list)
	var jobs []job
	if err == nil {
		err = json.Unmarshal(text, &jobs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	say := speaker(port)
	for _, j := range jobs {
		exit, failed := j.perform(say)
		// An emulated machine is slow, and what it runs has deadlines for real ones.
		switch {
		case j.Tests && len(failed) > 0:
			pattern := "^(" + strings.Join(failed, "|") + ")$"
			say(message{Job: j.Name, Again: pattern})
			j.Argv = append(j.Argv, "-test.run="+pattern)
			j.perform(say)
		case j.Again && exit != 0:
			say(message{Job: j.Name, Again: "all"})
			j.perform(say)
		}
	}
	say(message{Done: true})
	unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1) // until all of it is out
	return 0
}

// openPort opens a serial port that changes no byte.
func openPort(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		f.Close()
		return nil, err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB|unix.CRTSCTS) | unix.CS8 | unix.CREAD | unix.CLOCAL
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func speaker(port io.Writer) func(message) {
	var mu sync.Mutex
	return func(m message) {
		line, err := json.Marshal(m)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		port.Write(append(line, '\n'))
	}
}

// failure is how a test binary says it.
var failure = regexp.MustCompile(`^\x16?--- FAIL: (\w+) `)

// perform runs one job, tells of it, and returns how it ended and the tests
// that failed.
func (j job) perform(say func(message)) (exit int, failed []string) {
	began := time.Now()
	exit = j.run(func(line string) {
		say(message{Job: j.Name, Line: line})
		if f := failure.FindStringSubmatch(line); f != nil {
			failed = append(failed, f[1])
		}
	})
	say(message{Job: j.Name, Exit: &exit, Seconds: time.Since(began).Seconds()})
	return exit, failed
}

// run runs one job and returns its exit code, or -1 if it had none.
func (j job) run(line func(string)) int {
	dir, err := os.MkdirTemp("/tmp", "j")
	if err != nil {
		line(err.Error())
		return -1
	}
	os.Chown(dir, j.UID, j.UID)
	c := exec.Command(j.Argv[0], j.Argv[1:]...)
	c.Dir = dir
	c.Env = append([]string{"PATH=/bin", "HOME=" + dir, "TMPDIR=" + dir}, j.Env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(j.UID), Gid: uint32(j.UID)}}
	stdin, err := c.StdinPipe()
	if err != nil {
		line(err.Error())
		return -1
	}
	c.WaitDelay = time.Second // for who keeps the pipe open behind it
	r, w := io.Pipe()
	c.Stdout, c.Stderr = w, w
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := bufio.NewReader(r)
		for {
			s, err := b.ReadString('\n')
			if s != "" {
				line(strings.TrimSuffix(s, "\n"))
				if j.Await != "" && strings.Contains(s, j.Await) {
					stdin.Close()
				}
			}
			if err != nil {
				return
			}
		}
	}()
	if err := c.Start(); err != nil {
		line(err.Error())
		return -1
	}
	go func() {
		io.WriteString(stdin, j.Stdin)
		if j.Await == "" {
			stdin.Close()
		}
	}()
	stop := time.AfterFunc(time.Duration(j.Seconds)*time.Second, func() {
		line("the job took too long")
		unix.Kill(-c.Process.Pid, unix.SIGKILL)
	})
	err = c.Wait()
	stop.Stop()
	w.Close()
	<-read
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		line(err.Error())
	}
	return c.ProcessState.ExitCode()
}
