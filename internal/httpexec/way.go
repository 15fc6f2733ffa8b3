package httpexec

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/dialrule"
)

// Way is what a connection to a target is like. Its zero value is the usual
// way: straight there, with the system's authorities.
type Way struct {
	CA    string   // PEM of the only authorities that are believed
	Pins  []string // base64 SHA-256 of a SubjectPublicKeyInfo, one of which the server must have
	Proxy Proxy    // the proxy that the connection is made through; zero: none
	HTTP1 bool     // HTTP/2 is not offered
}

// Proxy is a proxy that makes tunnels for CONNECT. It reads nothing of what
// goes through, since only https does.
type Proxy struct {
	Scheme, Host string // http or https; empty: no proxy
	Port         int
}

// id tells ways apart in the key of a connection.
func (w Way) id() string {
	return strings.Join([]string{w.CA, strings.Join(w.Pins, " "), w.Proxy.Scheme, w.Proxy.Host, strconv.Itoa(w.Proxy.Port),
		strconv.FormatBool(w.HTTP1)}, "\x00")
}

// tunnel connects to the proxy of t and has it connect to the target. The proxy
// looks the target's name up: what it dials is up to it, and only an address that
// stands in the access file itself can be judged here.
func (e *Executor) tunnel(ctx context.Context, t Target) (tcp *net.TCPConn, rw net.Conn, err error) {
	if t.Scheme != "https" {
		return nil, nil, blocked("plain http does not go through a proxy, which would read the credential")
	}
	rule := dialrule.Rule{Private: t.Private, OwnPorts: e.ownPorts}
	if a, err := netip.ParseAddr(t.Host); err == nil {
		if err := rule.Check(netip.AddrPortFrom(a, uint16(t.Port))); err != nil {
			return nil, nil, &Error{Code: CodeTargetBlocked, Cause: err}
		}
	}
	proxy := t.Way.Proxy
	if tcp, err = e.reach(ctx, rule, proxy.Host, proxy.Port); err != nil {
		return nil, nil, ofProxy(err)
	}
	rw = tcp
	if proxy.Scheme == "https" {
		if rw, err = handshake(ctx, tcp, &tls.Config{ServerName: serverName(proxy.Host), RootCAs: e.roots, MinVersion: tls.VersionTLS12}); err != nil {
			tcp.Close()
			return nil, nil, ofProxy(err)
		}
	}
	if err := openTunnel(ctx, rw, net.JoinHostPort(t.Host, strconv.Itoa(t.Port))); err != nil {
		tcp.Close()
		return nil, nil, ofProxy(err)
	}
	return tcp, rw, nil
}

// ofProxy says that it was not the target that failed.
func ofProxy(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Code: e.Code, Cause: fmt.Errorf("the proxy: %w", e.Cause)}
	}
	return notSent(fmt.Errorf("the proxy: %w", err))
}

const maxTunnelHead = 16 << 10

func openTunnel(ctx context.Context, rw net.Conn, authority string) error {
	until := time.Now().Add(dialTimeout)
	if d, ok := ctx.Deadline(); ok {
		until = earlier(until, d)
	}
	if err := rw.SetDeadline(until); err != nil {
		return plain(err)
	}
	if _, err := fmt.Fprintf(rw, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority); err != nil {
		return plain(err)
	}
	br := bufio.NewReader(io.LimitReader(rw, maxTunnelHead))
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isNetwork(err):
		return plain(err)
	case err != nil:
		return errors.New("its answer is not HTTP")
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return errors.New("it wants a password, which is not supported")
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("it refused with status %d", resp.StatusCode)
	case br.Buffered() > 0: // a server of TLS is silent until it is spoken to
		return errors.New("it sent more than an answer")
	}
	return nil
}

func isNetwork(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok
}

func serverName(host string) string { return strings.TrimSuffix(host, ".") }

// secure makes the TLS of a connection to the target.
func (e *Executor) secure(ctx context.Context, rw net.Conn, t Target, key poolKey) (*tls.Conn, error) {
	c := &tls.Config{ServerName: serverName(t.Host), RootCAs: e.roots, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}, ClientSessionCache: e.pool.tickets(key)}
	if t.Way.HTTP1 {
		c.NextProtos = c.NextProtos[1:]
	}
	if t.Way.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.Way.CA)) {
			return nil, notSent(errors.New("the authorities of the access file cannot be read"))
		}
	}
	if len(t.Way.Pins) > 0 {
		c.VerifyConnection = func(s tls.ConnectionState) error { return checkPins(s, t.Way.Pins) }
	}
	conn, err := handshake(ctx, rw, c)
	if err != nil {
		return nil, notSent(fmt.Errorf("TLS with %s: %w", t.Host, err))
	}
	return conn, nil
}

func handshake(ctx context.Context, rw net.Conn, c *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	conn := tls.Client(rw, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, plain(err)
	}
	return conn, nil
}

// errPin is a server that proved its name with another key than the listed ones.
var errPin = errors.New("the server's key is not one that the access file pins")

// checkPins asks for a listed key in one of the chains that were verified: the
// server's own, or that of an authority that vouches for it. It is asked on
// resumed connections too.
func checkPins(s tls.ConnectionState, pins []string) error {
	for _, chain := range s.VerifiedChains {
		for _, cert := range chain {
			sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
			if slices.Contains(pins, base64.StdEncoding.EncodeToString(sum[:])) {
				return nil
			}
		}
	}
	return errPin
}
