package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/install"
)

// managerTime bounds one request to the service manager: stopping the broker
// may take as long as its unit allows.
const managerTime = 30 * time.Second

// manager is the account's systemd.
type manager struct {
	systemctl string
	runtime   string // directory
}

// findManager looks for the account's own systemd, where systemd puts it. No
// variable of the environment is asked.
func findManager(place install.Place) (*manager, error) {
	m := &manager{runtime: filepath.Join("/run/user", strconv.Itoa(place.UID))}
	if _, err := os.Stat(filepath.Join(m.runtime, "systemd/private")); err != nil {
		return nil, errors.New("no service manager runs for this account (systemd --user has no socket in " + m.runtime + ")")
	}
	for _, path := range []string{"/usr/bin/systemctl", "/bin/systemctl", "/run/current-system/sw/bin/systemctl"} {
		if _, err := os.Stat(path); err == nil {
			m.systemctl = path
			return m, nil
		}
	}
	return nil, errors.New("systemctl was not found")
}

func (m *manager) name() string { return "systemd" }

func (m *manager) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, managerTime)
	defer cancel()
	c := exec.CommandContext(ctx, m.systemctl, append([]string{"--user", "--no-pager", "--no-ask-password"}, args...)...)
	c.Env = []string{"XDG_RUNTIME_DIR=" + m.runtime, "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	c.Dir = "/"
	var words strings.Builder
	c.Stderr = &words
	out, err := c.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("systemctl %s did not end in %v", args[0], managerTime)
	}
	if err != nil {
		return string(out), fmt.Errorf("systemctl %s: %v: %s", args[0], err, strings.TrimSpace(words.String()))
	}
	return string(out), nil
}

func (m *manager) reload(ctx context.Context) error {
	_, err := m.run(ctx, "daemon-reload")
	return err
}

// enable makes the manager listen, now and at every login.
func (m *manager) enable(ctx context.Context) error {
	if err := m.reload(ctx); err != nil {
		return err
	}
	_, err := m.run(ctx, "enable", "--now", install.SocketUnit)
	return err
}

// disable stops listening first, so that nothing starts the broker again.
func (m *manager) disable(ctx context.Context) error {
	if _, err := m.run(ctx, "disable", "--now", install.SocketUnit); err != nil {
		return err
	}
	_, err := m.run(ctx, "stop", install.ServiceUnit)
	return err
}

// state asks for both units; a manager that does not answer says nothing.
func (m *manager) state(ctx context.Context) managerState {
	socket, service := m.show(ctx, install.SocketUnit), m.show(ctx, install.ServiceUnit)
	pid, _ := strconv.Atoi(service["MainPID"])
	return managerState{Enabled: socket["UnitFileState"] == "enabled", Listening: socket["ActiveState"] == "active", Running: pid != 0, PID: pid,
		socketUnit: socket["FragmentPath"], starts: programIn(service["ExecStart"])}
}

func (m *manager) show(ctx context.Context, unit string) map[string]string {
	out, err := m.run(ctx, "show", "--property=ActiveState,UnitFileState,MainPID,FragmentPath,ExecStart", unit)
	if err != nil {
		return nil
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	return values
}

// programIn is the program in the words of systemd for a command line:
// { path=/usr/bin/yett ; argv[]=… }.
func programIn(start string) string {
	_, after, _ := strings.Cut(start, "path=")
	path, _, _ := strings.Cut(after, " ;")
	return path
}
