package suspend

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	patience = 2 * time.Second // for each step with the bus

	logind  = "org.freedesktop.login1"
	manager = logind + ".Manager"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
)

// connection is one to the bus. What is under way ends when its socket closes.
type connection struct {
	*dbus.Conn
	socket net.Conn
}

func (c *connection) close() {
	c.socket.Close() // first: Conn.Close waits for a message that is being written
	c.Conn.Close()
}

// listener hears logind on one connection.
type listener struct {
	*connection
	stop  func() bool
	sleep chan bool     // PrepareForSleep
	gone  chan struct{} // closed when logind leaves or is replaced
	left  sync.Once

	mu    sync.Mutex
	owner string // the bus's own name for logind; "" until it is known
}

// listen connects and subscribes. The connection passes no descriptors, since
// any account may send a signal to any connection, and nobody would close what
// came with it.
func listen(ctx context.Context, bus string) (*listener, error) {
	l := &listener{sleep: make(chan bool, 8), gone: make(chan struct{})}
	conn, err := dial(ctx, bus, func(c *net.UnixConn) (*dbus.Conn, error) {
		return dbus.NewConn(c, dbus.WithSignalHandler(l))
	})
	if err != nil {
		return nil, err
	}
	l.connection = conn
	l.stop = context.AfterFunc(ctx, conn.close)
	if err := l.subscribe(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// subscribe asks for the change of logind's name before it asks for the name.
func (l *listener) subscribe(ctx context.Context) error {
	const match = "org.freedesktop.DBus.AddMatch"
	daemon := l.BusObject()
	err := l.call(ctx, daemon, match, "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='"+logind+"'").Err
	if err != nil {
		return fmt.Errorf("subscribing on the system's bus: %w", err)
	}
	var owner string
	if err := l.call(ctx, daemon, "org.freedesktop.DBus.GetNameOwner", logind).Store(&owner); err != nil {
		return fmt.Errorf("looking for logind: %w", err)
	}
	l.mu.Lock()
	l.owner = owner
	l.mu.Unlock()
	err = l.call(ctx, daemon, match, "type='signal',sender='"+logind+"',interface='"+manager+"',member='PrepareForSleep',path='"+string(object)+"'").Err
	if err != nil {
		return fmt.Errorf("subscribing to logind: %w", err)
	}
	return nil
}

// DeliverSignal takes what logind says, and what the bus says about logind.
// The subscription does not bind who sends to this connection by its name.
func (l *listener) DeliverSignal(iface, member string, s *dbus.Signal) {
	if s.Sender == "org.freedesktop.DBus" {
		if member == "NameOwnerChanged" && len(s.Body) == 3 && s.Body[0] == logind {
			l.left.Do(func() { close(l.gone) })
		}
		return
	}
	l.mu.Lock()
	owner := l.owner
	l.mu.Unlock()
	if owner == "" || s.Sender != owner || iface != manager || member != "PrepareForSleep" || s.Path != object || len(s.Body) != 1 {
		return
	}
	if sleeping, ok := s.Body[0].(bool); ok {
		select {
		case l.sleep <- sleeping:
		case <-l.Context().Done():
		}
	}
}

// preparing reports whether the machine is falling asleep already.
func (l *listener) preparing(ctx context.Context) (bool, error) {
	var v dbus.Variant
	err := l.call(ctx, l.Object(logind, object), "org.freedesktop.DBus.Properties.Get", manager, "PreparingForSleep").Store(&v)
	if err != nil {
		return false, fmt.Errorf("asking logind: %w", err)
	}
	b, _ := v.Value().(bool)
	return b, nil
}

func (l *listener) close() {
	l.stop()
	l.connection.close()
}

// inhibit takes logind's delay lock, which is held until the file is closed.
// It needs no connection to live on, so it has one of its own for a moment.
func inhibit(ctx context.Context, bus string) (*os.File, error) {
	conn, err := dial(ctx, bus, func(c *net.UnixConn) (*dbus.Conn, error) { return dbus.DialUnix(c) })
	if err != nil {
		return nil, err
	}
	defer conn.close()
	var fd dbus.UnixFD
	if err := conn.call(ctx, conn.Object(logind, object), manager+".Inhibit", "sleep", "Yett", "Locks before the machine sleeps", "delay").Store(&fd); err != nil {
		return nil, fmt.Errorf("taking a delay lock of logind: %w", err)
	}
	return os.NewFile(uintptr(fd), "delay lock of logind"), nil
}

// dial connects and greets within patience.
func dial(ctx context.Context, bus string, wrap func(*net.UnixConn) (*dbus.Conn, error)) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", bus)
	if err != nil {
		return nil, fmt.Errorf("connecting to the system's bus: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() }) // ends every read and write below
	conn, err := wrap(c.(*net.UnixConn))
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("greeting the system's bus: %w", err)
	}
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = conn.Hello()
	}
	if !stop() {
		err = fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greeting the system's bus: %w", err)
	}
	return &connection{conn, c}, nil
}

// call asks within patience and starts no service. A connection that was asked
// in vain is closed.
func (c *connection) call(ctx context.Context, o dbus.BusObject, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stop := context.AfterFunc(ctx, c.close)
	answer := o.CallWithContext(ctx, method, dbus.FlagNoAutoStart, args...)
	if !stop() && answer.Err != nil {
		answer.Err = fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
	return answer
}
