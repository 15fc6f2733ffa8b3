package notify

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	service  = "org.freedesktop.Notifications"
	object   = dbus.ObjectPath("/org/freedesktop/Notifications")
	portal   = "org.freedesktop.portal.Desktop"
	portalAt = dbus.ObjectPath("/org/freedesktop/portal/desktop")

	retry  = 30 * time.Second       // between two looks for a desktop
	settle = 300 * time.Millisecond // cards of one moment are told together
)

// SessionBus is where the account's session bus listens. It is found by the
// account, never by the environment.
func SessionBus() string { return fmt.Sprintf("/run/user/%d/bus", os.Getuid()) }

// Watch tells the desktop what waits until ctx ends.
func Watch(ctx context.Context, bus string, log *slog.Logger, s Source) {
	for ctx.Err() == nil {
		d, err := reach(ctx, bus)
		if err != nil {
			log.Debug("no desktop takes notifications", "cause", err)
			pause(ctx, retry)
			continue
		}
		gone := s.Reached()
		err = d.tell(ctx, s)
		gone()
		d.close()
		if ctx.Err() == nil {
			log.Info("the desktop takes no notifications any more", "cause", err)
			pause(ctx, time.Second)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// desktop is a connection to the session bus on which a service takes
// notifications.
type desktop struct {
	conn    *dbus.Conn
	socket  net.Conn
	owner   string // the bus's own name for the service
	signals chan *dbus.Signal
	shown   uint32 // the notification that is shown, 0 for none
	about   string // the first card that it is about
	count   int
	url     string
}

func (d *desktop) close() {
	d.socket.Close() // first: Conn.Close waits for a message that is being written
	d.conn.Close()
}

// reach connects, and finds out who takes notifications; the bus may start it.
func reach(ctx context.Context, bus string) (*desktop, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", bus)
	if err != nil {
		return nil, fmt.Errorf("connecting to the session bus: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	d := &desktop{socket: c, signals: make(chan *dbus.Signal, 64)}
	if d.conn, err = dbus.NewConn(c); err != nil {
		c.Close()
		return nil, fmt.Errorf("greeting the session bus: %w", err)
	}
	if err = d.greet(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *desktop) greet(ctx context.Context) error {
	err := d.conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = d.conn.Hello()
	}
	if err != nil {
		return fmt.Errorf("greeting the session bus: %w", err)
	}
	d.conn.Signal(d.signals)
	if err := d.conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface(service), dbus.WithMatchObjectPath(object)); err != nil {
		return fmt.Errorf("listening to notifications: %w", err)
	}
	if err := d.conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, service)); err != nil {
		return fmt.Errorf("listening to the bus: %w", err)
	}
	if err := d.conn.Object(service, object).CallWithContext(ctx, service+".GetServerInformation", 0).Err; err != nil {
		return fmt.Errorf("looking for who takes notifications: %w", err)
	}
	if err := d.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, service).Store(&d.owner); err != nil {
		return fmt.Errorf("naming who takes notifications: %w", err)
	}
	return nil
}

// tell keeps one notification about what waits, until the desktop goes.
func (d *desktop) tell(ctx context.Context, s Source) error {
	for {
		changed := s.Changed()
		for len(d.signals) > 0 { // what was said before what is shown next
			if err := d.heard(ctx, <-d.signals); err != nil {
				return err
			}
		}
		if err := d.show(ctx, s.Waiting()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			d.show(context.WithoutCancel(ctx), Waiting{})
			return ctx.Err()
		case sig, ok := <-d.signals:
			if !ok {
				return fmt.Errorf("the bus has gone")
			}
			if err := d.heard(ctx, sig); err != nil {
				return err
			}
		case <-changed:
			pause(ctx, settle)
		}
	}
}

// show makes the notification say what waits, and takes it away when nothing
// does. It is shown anew only when there is more than it said.
func (d *desktop) show(ctx context.Context, w Waiting) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	to := d.conn.Object(service, object)
	if w.Count == 0 {
		if d.shown == 0 {
			return nil
		}
		id := d.shown
		d.shown, d.about, d.count = 0, "", 0
		return to.CallWithContext(ctx, service+".CloseNotification", dbus.FlagNoAutoStart, id).Err
	}
	if w.ID == d.about && w.Count <= d.count {
		d.count = w.Count
		return nil
	}
	title := "An agent asks"
	if w.Count > 1 {
		title = fmt.Sprintf("%d cards wait", w.Count)
	}
	body := html.EscapeString(w.Tag + ": " + w.What)
	actions := []string{"default", "Open the console"}
	hints := map[string]dbus.Variant{"urgency": dbus.MakeVariant(byte(1)), "category": dbus.MakeVariant("x-yett.card")}
	err := to.CallWithContext(ctx, service+".Notify", dbus.FlagNoAutoStart, "Yett", d.shown, "dialog-password", title, body, actions, hints, int32(-1)).Store(&d.shown)
	if err != nil {
		return fmt.Errorf("notifying: %w", err)
	}
	d.about, d.count, d.url = w.ID, w.Count, w.URL
	return nil
}

// heard takes what the service says about the notification that it shows.
func (d *desktop) heard(ctx context.Context, s *dbus.Signal) error {
	switch {
	case s == nil: // the connection has ended
		return fmt.Errorf("the bus has gone")
	case s.Sender == "org.freedesktop.DBus" && strings.HasSuffix(s.Name, ".NameOwnerChanged"):
		return fmt.Errorf("who takes notifications has changed")
	case s.Sender != d.owner || len(s.Body) != 2 || s.Body[0] != d.shown || d.shown == 0:
		return nil
	case s.Name == service+".ActionInvoked":
		return d.openPage(ctx)
	case s.Name == service+".NotificationClosed":
		d.shown = 0
	}
	return nil
}

// openPage has the desktop open the console's page. Where it cannot, the person
// opens it by yett console.
func (d *desktop) openPage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d.conn.Object(portal, portalAt).CallWithContext(ctx, "org.freedesktop.portal.OpenURI.OpenURI", 0, "", d.url, map[string]dbus.Variant{})
	return nil
}
