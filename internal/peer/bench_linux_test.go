package peer

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkRecheck measures what the broker does before every request and
// before every step that cannot be taken back, beside the one poll without
// which there is no evidence at all.
func BenchmarkRecheck(b *testing.B) {
	_, c := connect(b, program(b))
	p, err := Of(c)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.Run("poll", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !p.Alive() {
				b.Fatal("not alive")
			}
		}
	})
	usual := identify
	defer func() { identify = usual }()
	for name, way := range map[string]func(int) (identity, error){"info": identifyByInfo, "proc": identifyByProc} {
		identify = way
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Recheck(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAccept measures taking the evidence of one connection, without the
// digest, beside an accept that asks nothing.
func BenchmarkAccept(b *testing.B) {
	l, path := listen(b)
	accepted := func(b *testing.B) *net.UnixConn {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			b.Fatal(err)
		}
		c, err := l.AcceptUnix()
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			accepted(b).Close()
		}
	})
	b.Run("evidence", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := accepted(b)
			p, err := Of(c)
			if err != nil {
				b.Fatal(err)
			}
			p.Close()
			c.Close()
		}
	})
}
