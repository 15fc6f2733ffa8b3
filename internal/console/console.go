// Package console serves the page on which a person decides: what waits, what
// lives, what was done, what may be done. It listens on loopback only and has no
// authority of its own. Whatever widens goes to the broker with the person's
// proof, as a command's request does; the package knows no vault, no ledger and
// no executor.
//
// # Whom it trusts
//
// The broker, for everything that it shows and for every judgement. Of who is at
// the other end it trusts the kernel alone: the account of the socket, and which
// processes hold it as far as they can be looked at. A browser is trusted for
// what it says about where a request comes from (Host, Origin, Sec-Fetch-Site),
// since a page of another site cannot make it lie; a program that is no browser
// can say anything there, and gets nothing by it. No text is trusted: what is
// shown was escaped where cards are written, is escaped again by html/template,
// and meets a policy under which no inline script runs.
//
// # What a browser holds
//
// The files of the page are public: they hold no secret and no number. A proof
// opens the page; its token, 32 random bytes, then lies in the memory of that
// page, is sent in a header, and ends with the page, with a lock and after what
// the broker allows for reading. There are no cookies, nothing is stored, and
// no address holds anything but the name of a card. A passphrase is sent in the
// body of a request over loopback, is made into keys by the broker, used once and
// wiped. A decision carries the digests of the cards that were shown.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// Port is where the console listens unless told otherwise: one fixed port, since
// a passkey's answer counts for one origin only. No service is registered for it,
// and it lies below the ports that systems give out by themselves.
const Port = 29388

// Broker is what the console asks of the broker. All methods may be called
// concurrently.
type Broker interface {
	// Status needs no proof and names nobody.
	Status() wire.Status
	// Changed returns a channel that is closed at the next change of what waits.
	Changed() <-chan struct{}
	// Noticing says that somebody would notice a card, until done is called.
	Noticing() (done func())
	// Visit says who is at the other end of a connection, or that it is nobody
	// whom the console serves. The key is empty where no process can be named.
	Visit(local, remote netip.AddrPort) (key string, err error)
	// OpenPage takes the evidence of a page to which nothing is open yet.
	OpenPage(local, remote netip.AddrPort, browser string) (Page, error)
}

// Page is one page in a browser, as the broker sees it.
type Page interface {
	// Ask makes one request of management and is refused like any other.
	Ask(method string, m wire.Managed) (any, *wire.Error)
	// Derive makes the keys of a passphrase or recovery code, right or wrong.
	Derive(phrase []byte) (Keys, *wire.Error)
	// Reading reports whether a proof has opened reading, and has not ended.
	Reading() bool
	// Clicking reports whether a proof lets it decide by a click, for a while.
	Clicking() bool
	Close()
}

// Keys prove. They hold secrets and are wiped after use.
type Keys interface {
	Slot() string
	Unlock() []byte
	Sign(message []byte) []byte
	Wipe()
}

// Check is one line of the view that says whether everything is in order.
type Check struct {
	Name, Level, Found, NextStep string // Level is ok, note or problem
}

// Review is the closing review: a page of facts and the matrix.
type Review struct {
	Topics  []Topic
	Columns []string
	Rows    [][]string
}

// Topic is one heading of the review with its facts.
type Topic struct {
	Name  string
	Facts []Fact
}

// Fact is a sentence and where it was read.
type Fact struct{ Text, From string }

// Ask asks the broker as a page, for what a view needs besides.
type Ask func(method string, request, result any) error

// Config has what a console is made of. All of it but TestHome is required.
type Config struct {
	Broker Broker
	Log    *slog.Logger
	Port   int
	// TestHome is the directory of a broker that is not the account's own.
	TestHome string
	// Doctor looks at the installation and changes nothing.
	Doctor func(context.Context) []Check
	// Review makes the review from the running system.
	Review func(context.Context, Ask) (Review, error)
}

// Console serves one broker's page.
type Console struct {
	Config
	host, origin string
	listeners    []net.Listener
	server       *http.Server
	stop         chan struct{}
	stopping     sync.Once
	traffic      traffic

	mu      sync.Mutex
	pages   map[tokenHash]*opened
	streams int // without a token
}

// Times of the server. Nobody may hold a connection by saying nothing.
const (
	headerTime = 5 * time.Second
	readTime   = 15 * time.Second
	writeTime  = 75 * time.Second // a proof after wrong ones waits up to thirty seconds
	idleTime   = 2 * time.Minute
	stopTime   = 500 * time.Millisecond
)

// Listen takes the port on 127.0.0.1 and on [::1], both or neither: a name leads
// a browser to either of them. Nothing is served before Serve.
func Listen(c Config) (*Console, error) {
	if c.Broker == nil || c.Log == nil || c.Doctor == nil || c.Review == nil || c.Port == 0 {
		return nil, errors.New("console: a required part is missing")
	}
	listeners, err := listenBoth(c.Port)
	if err != nil {
		return nil, err
	}
	host := "localhost:" + strconv.Itoa(c.Port)
	s := &Console{Config: c, host: host, origin: "http://" + host, listeners: listeners,
		stop: make(chan struct{}), pages: map[tokenHash]*opened{}}
	s.server = &http.Server{Handler: s.handler(), ReadHeaderTimeout: headerTime, ReadTimeout: readTime,
		WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10,
		ConnContext: s.traffic.connContext, ConnState: s.traffic.connState,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)}
	return s, nil
}

// Serve answers until Close. It returns when both listeners have ended.
func (c *Console) Serve() error {
	failed := make(chan error, len(c.listeners))
	for _, l := range c.listeners {
		go func() { failed <- c.server.Serve(l) }()
	}
	go c.sweep()
	var first error
	for range c.listeners {
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			first = errors.Join(first, fmt.Errorf("serving the console: %w", err))
			c.Close() // both or neither
		}
	}
	return first
}

// Close ends every page and gives the port back.
func (c *Console) Close() {
	c.stopping.Do(func() {
		close(c.stop)
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if c.server.Shutdown(ctx) != nil {
			c.server.Close()
		}
		for _, l := range c.listeners {
			l.Close()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for t, o := range c.pages {
			o.page.Close()
			delete(c.pages, t)
		}
	})
}
