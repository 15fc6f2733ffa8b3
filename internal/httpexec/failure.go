package httpexec

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Codes of an Error.
const (
	CodeTargetBlocked = "target_blocked"            // the address or scheme is one that is never used
	CodeOutside       = "action_outside_capability" // the action holds what an agent may not set
	CodeUpstream      = "upstream"                  // no answer, or none that could be read
)

// Error is why there is no answer. Its text is made of our own words, host
// names of the access file, addresses and system error numbers: never of a
// secret, a query, a header value or anything that the upstream wrote.
type Error struct {
	Code      string
	MaybeSent bool // the request may have arrived: the outcome is unknown
	Cause     error
}

func (e *Error) Error() string { return e.Code + ": " + e.Cause.Error() }

func (e *Error) Unwrap() error { return e.Cause }

func blocked(cause string) *Error {
	return &Error{Code: CodeTargetBlocked, Cause: errors.New(cause)}
}

func outside(cause string) *Error {
	return &Error{Code: CodeOutside, Cause: errors.New(cause)}
}

func notSent(cause error) *Error { return &Error{Code: CodeUpstream, Cause: cause} }

func maybeSent(cause error) *Error {
	return &Error{Code: CodeUpstream, MaybeSent: true, Cause: cause}
}

// cause is an error text of our own that still answers errors.Is for the
// sentinel behind it.
type cause struct {
	text string
	is   error
}

func (c *cause) Error() string { return c.text }

func (c *cause) Unwrap() error { return c.is }

// plain replaces an error of the network, TLS or HTTP packages by words of our
// own. Those packages quote what the other side sent, and that may be an echo.
func plain(err error) error {
	var (
		errno     syscall.Errno
		dns       *net.DNSError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		op        *net.OpError
		record    tls.RecordHeaderError
		timeout   net.Error
	)
	switch {
	case errors.Is(err, errPin):
		return errPin
	case errors.Is(err, context.Canceled):
		return &cause{"the call was cancelled", context.Canceled}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &cause{"the time limit passed", context.DeadlineExceeded}
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return errors.New("the name does not resolve")
		}
		return errors.New("looking up the name failed")
	case errors.As(err, &authority):
		return errors.New("the certificate is signed by an unknown authority")
	case errors.As(err, &hostname):
		return errors.New("the certificate is for another name")
	case errors.As(err, &invalid):
		return errors.New("the certificate is not valid")
	case errors.As(err, &record):
		return errors.New("the other side does not speak TLS")
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert
		return errors.New("the other side refused the TLS handshake")
	case errors.As(err, &errno):
		return &cause{errno.Error(), errno}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &cause{"the other side closed the connection", io.ErrUnexpectedEOF}
	case errors.Is(err, net.ErrClosed):
		return &cause{"the connection was closed", net.ErrClosed}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &cause{"the time limit passed", context.DeadlineExceeded}
	}
	return errors.New("the exchange failed")
}
