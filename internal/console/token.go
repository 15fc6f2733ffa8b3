package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// tokenHash is how a token is kept: whoever reads the memory later finds none.
type tokenHash [sha256.Size]byte

func hashOf(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// opened is a page that a proof opened.
type opened struct {
	page   Page
	key    string    // of the browser's process, "" if it is not known
	since  time.Time // when reading was opened last
	used   time.Time // Console.mu
	stream int       // Console.mu: how many event streams it holds
}

const (
	// renewAfter is how old the opening may be before a decision's proof renews
	// it.
	renewAfter = 5 * time.Minute
	// unusedTime is how long a page lives that nothing is heard of.
	unusedTime = 3 * time.Minute
)

// keep gives an opened page a token.
func (c *Console) keep(p Page, key string) (token string) {
	raw := make([]byte, 32)
	rand.Read(raw)
	token = base64.RawURLEncoding.EncodeToString(raw)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages[hashOf(token)] = &opened{page: p, key: key, since: now, used: now}
	return token
}

// find returns the page of a request's token. A token counts only from the
// process that opened the page, where the kernel names it.
func (c *Console) find(r *http.Request) *opened {
	token := bearer(r)
	if token == "" {
		return nil
	}
	v := visitOf(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.pages[hashOf(token)]
	if o == nil || o.key != v.key && o.key != "" {
		return nil
	}
	o.used = time.Now()
	if o.page.Reading() { // a page that waits for its proof has a token too
		c.traffic.proved(v)
	}
	return o
}

// drop ends a page.
func (c *Console) drop(token string) {
	c.mu.Lock()
	o := c.pages[hashOf(token)]
	delete(c.pages, hashOf(token))
	c.mu.Unlock()
	if o != nil {
		o.page.Close()
	}
}

// sweep ends pages that have gone.
func (c *Console) sweep() {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		for t, o := range c.pages {
			if o.stream == 0 && time.Since(o.used) > unusedTime {
				delete(c.pages, t)
				o.page.Close()
			}
		}
		c.mu.Unlock()
	}
}

// withPage serves what only an opened page may ask for.
func (c *Console) withPage(serve func(w http.ResponseWriter, r *http.Request, o *opened)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o := c.find(r)
		if o == nil {
			refuse(w, wire.NewError(wire.CodeProofRequired))
			return
		}
		serve(w, r, o)
	}
}

// withAny serves what needs no proof: by the opened page, or by one that is
// opened for this request alone.
func (c *Console) withAny(serve func(w http.ResponseWriter, r *http.Request, p Page)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if o := c.find(r); o != nil {
			serve(w, r, o.page)
			return
		}
		p, fail := c.newPage(r)
		if fail != nil {
			refuse(w, fail)
			return
		}
		defer p.Close()
		serve(w, r, p)
	}
}

// newPage opens a page for a request. When there are too many, one to which
// nothing is open makes room: asking for challenges keeps nobody out.
func (c *Console) newPage(r *http.Request) (Page, *wire.Error) {
	v := visitOf(r)
	for {
		p, err := c.Broker.OpenPage(v.local, v.remote, r.UserAgent())
		var fail *wire.Error
		switch {
		case err == nil:
			return p, nil
		case errors.As(err, &fail) && fail.Code == wire.CodeBusy && c.makeRoom():
		case fail != nil:
			return nil, fail
		default:
			c.Log.Warn("a page could not be opened", "cause", err)
			return nil, wire.NewError(wire.CodeAttributionFailed)
		}
	}
}

// makeRoom ends the page that was used longest ago of those that may not read.
func (c *Console) makeRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest tokenHash
	var found *opened
	for t, o := range c.pages {
		if !o.page.Reading() && (found == nil || o.used.Before(found.used)) {
			oldest, found = t, o
		}
	}
	if found == nil {
		return false
	}
	delete(c.pages, oldest)
	found.page.Close()
	return true
}
