package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/yett-broker/yett/internal/macos/system"
)

func tryLaunchd(context.Context, *setting) (string, error) {
	k, _, err := open()
	if err != nil {
		return "", err
	}
	_, err = k.LaunchSockets("broker")
	if !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.ENOENT) {
		return "", fmt.Errorf("want ESRCH, got: %w", err)
	}
	return err.Error(), nil
}

// jobLabel begins with what endpoint.Inherited looks for.
const jobLabel = "io.github.yett-broker.selftest"

var job = template.Must(template.New("job").Parse(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
<key>Label</key><string>{{.Label}}</string>
<key>ProgramArguments</key><array><string>{{.Program}}</string><string>selftest</string><string>--role</string><string>{{.Role}}</string></array>
<key>Sockets</key><dict><key>broker</key><dict>
<key>SockPathName</key><string>{{.Socket}}</string><key>SockPathMode</key><integer>384</integer>
</dict></dict>
</dict></plist>
`))

// tryLaunchdJob gives launchd a job with a socket, connects, and is answered by
// the job, which took the socket over. The job is taken away again.
func tryLaunchdJob(ctx context.Context, s *setting) (found string, err error) {
	if !s.interactive {
		return "", errInteractive // it is outside of the directory
	}
	if strings.ContainsAny(s.program+s.dir, "<>&") {
		return "", skipped("the path of yett would have to be escaped in a property list")
	}
	socket, plist := filepath.Join(s.dir, "job.sock"), filepath.Join(s.dir, jobLabel+".plist")
	f, err := os.OpenFile(plist, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	err = job.Execute(f, map[string]string{"Label": jobLabel, "Program": s.program, "Role": RoleLaunched, "Socket": socket})
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	domain := fmt.Sprintf("gui/%d", os.Getuid())
	if out, err := exec.CommandContext(ctx, "/bin/launchctl", "bootstrap", domain, plist).CombinedOutput(); err != nil {
		return "", fmt.Errorf("launchctl bootstrap: %w: %.200s", err, out)
	}
	defer func() {
		out := exec.Command("/bin/launchctl", "bootout", domain+"/"+jobLabel)
		time.AfterFunc(deadline, func() { out.Process.Kill() })
		if oerr := out.Run(); oerr != nil && err == nil {
			err = fmt.Errorf("launchctl bootout: %w", oerr)
		}
	}()
	c, err := net.DialTimeout("unix", socket, deadline)
	if err != nil {
		return "", fmt.Errorf("connecting to the job's socket: %w", err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(deadline))
	answer := make([]byte, 1)
	if _, err := c.Read(answer); err != nil || answer[0] != 'l' {
		return "", fmt.Errorf("the job answers %q: %w", answer, err)
	}
	return "the job answered on it", nil
}

// playLaunched is the job: it takes the socket over and answers one connection.
func playLaunched() error {
	k, err := system.OpenKernel(system.LibSystem)
	if err != nil {
		return err
	}
	fds, err := k.LaunchSockets("broker")
	if err != nil {
		return err
	}
	l, err := net.FileListener(os.NewFile(uintptr(fds[0]), "broker"))
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetDeadline(time.Now().Add(deadline))
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("l"))
	return err
}
