package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// InUseError tells that somebody else has the port, and who as far as it is
// known.
type InUseError struct {
	Address netip.AddrPort
	Err     error
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use", e.Address)
}

func (e *InUseError) Unwrap() error { return e.Err }

// listenTime bounds the taking of an address.
const listenTime = 2 * time.Second

// listenBoth takes the port on both loopback addresses, or neither. A system
// that has no [::1] at all cannot lead anybody there either: then 127.0.0.1 is
// all there is. SO_REUSEPORT is never set, so nobody can share the port later.
func listenBoth(port int) ([]net.Listener, error) {
	four := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
	six := netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port))
	l4, err := listenOn(four)
	if err != nil {
		return nil, err
	}
	l6, err := listenOn(six)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return []net.Listener{l4}, nil
	}
	if err != nil {
		l4.Close()
		return nil, err
	}
	return []net.Listener{l4, l6}, nil
}

func listenOn(at netip.AddrPort) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listenTime)
	defer cancel()
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, at.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &InUseError{at, err}
	}
	if err != nil {
		return nil, fmt.Errorf("listening on port %s: %w", strconv.Itoa(int(at.Port())), err)
	}
	return l, nil
}
