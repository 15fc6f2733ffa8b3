package endpoint

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// notifyWait bounds one word to the service manager.
const notifyWait = time.Second

// Manager is the service manager that started this process and wants to hear
// how it is, by sd_notify(3). A nil Manager hears nothing. It is told states
// and counts, never anything that a client said.
type Manager struct {
	socket   string
	watchdog time.Duration
}

// TakeManager returns the manager that the environment names, or nil. The
// variables are unset.
func TakeManager() *Manager {
	socket, limit, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	if !filepath.IsAbs(socket) && !strings.HasPrefix(socket, "@") {
		return nil
	}
	m := &Manager{socket: socket}
	usec, err := strconv.ParseInt(limit, 10, 64)
	if err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.watchdog = time.Duration(usec) * time.Microsecond
	}
	return m
}

// Watchdog is the longest time between two calls of Alive that the manager
// accepts, 0 where it does not watch.
func (m *Manager) Watchdog() time.Duration {
	if m == nil {
		return 0
	}
	return m.watchdog
}

// Ready says that clients can connect.
func (m *Manager) Ready(status string) error { return m.tell("READY=1\nSTATUS=" + line(status)) }

// Status says in words how the service is.
func (m *Manager) Status(status string) error { return m.tell("STATUS=" + line(status)) }

// Alive feeds the watchdog.
func (m *Manager) Alive() error { return m.tell("WATCHDOG=1") }

// Stopping says that the end has begun.
func (m *Manager) Stopping(why string) error { return m.tell("STOPPING=1\nSTATUS=" + line(why)) }

// line keeps a status from beginning an assignment of its own.
func line(s string) string { return strings.ReplaceAll(s, "\n", " ") }

func (m *Manager) tell(state string) error {
	if m == nil {
		return nil
	}
	c, err := net.DialTimeout("unixgram", m.socket, notifyWait)
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(notifyWait))
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	return nil
}
