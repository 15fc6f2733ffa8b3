package console

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds of what visitors may do before and after they have shown a token.
const (
	maxConns    = 96
	burst       = 120 // requests of one process at once
	perSecond   = 30  // and on and on
	maxVisitors = 1024
)

// traffic bounds connections and requests. When there are too many connections
// the oldest that has shown no token goes, so that nobody can keep the person
// out by holding all of them.
type traffic struct {
	mu      sync.Mutex
	conns   []*visit // oldest first
	buckets map[string]*bucket
}

// visit is one connection, and who is at its other end.
type visit struct {
	conn          net.Conn
	local, remote netip.AddrPort

	once sync.Once // the kernel is asked once for each connection
	key  string
	err  error

	proven bool // traffic.mu: a valid token came over it
}

type bucket struct {
	tokens float64
	at     time.Time
}

type visitKey struct{}

func (t *traffic) connContext(ctx context.Context, conn net.Conn) context.Context {
	v := &visit{conn: conn, local: addrPort(conn.LocalAddr()), remote: addrPort(conn.RemoteAddr())}
	t.mu.Lock()
	t.conns = append(t.conns, v)
	var gone *visit
	if len(t.conns) > maxConns {
		for i, old := range t.conns {
			if !old.proven {
				gone, t.conns = old, append(t.conns[:i:i], t.conns[i+1:]...)
				break
			}
		}
	}
	t.mu.Unlock()
	if gone != nil {
		gone.conn.Close()
	}
	return context.WithValue(ctx, visitKey{}, v)
}

func (t *traffic) connState(conn net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, v := range t.conns {
		if v.conn == conn {
			t.conns = append(t.conns[:i:i], t.conns[i+1:]...)
			return
		}
	}
}

func visitOf(r *http.Request) *visit {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	return v
}

// proved marks a connection as one of the person's.
func (t *traffic) proved(v *visit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.proven = true
}

// allow counts one request of a process.
func (t *traffic) allow(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	b := t.buckets[key]
	if b == nil {
		if t.buckets == nil || len(t.buckets) >= maxVisitors {
			t.buckets = map[string]*bucket{}
		}
		b = &bucket{tokens: burst, at: now}
		t.buckets[key] = b
	}
	b.tokens = min(burst, b.tokens+now.Sub(b.at).Seconds()*perSecond)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
