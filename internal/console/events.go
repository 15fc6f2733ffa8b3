package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

const (
	// lookTime is how often a stream looks at what nobody tells of: sessions,
	// locks, the end of reading.
	lookTime = time.Second
	// beatTime is how often a stream says that it is still there.
	beatTime = 3 * time.Second
	// maxStreams bounds the streams of everybody together.
	maxStreams = 32
	// streamWrite is how long a browser may take to read an event.
	streamWrite = 5 * time.Second
)

// news is what a page is told: numbers, and no name.
type news struct {
	Instance string `json:"instance"`
	State    string `json:"state"`
	Pending  int    `json:"pending"`
	Sessions int    `json:"sessions"`
	Paused   int    `json:"paused"`
	Reading  bool   `json:"reading"`
	Queue    int    `json:"queue"` // counts the changes of what waits, for this stream
}

// events tells a page at once when something waits, and within a second of
// anything else. Without a token it tells the numbers that everybody of the
// account may ask for.
func (c *Console) events(w http.ResponseWriter, r *http.Request) {
	o := c.find(r)
	if bearer(r) != "" && o == nil {
		refuse(w, wire.NewError(wire.CodeProofRequired))
		return
	}
	if !c.startStream(o) {
		refuse(w, wire.NewError(wire.CodeBusy))
		return
	}
	defer c.endStream(o)
	defer c.Broker.Noticing()()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(text string) bool {
		rc.SetWriteDeadline(time.Now().Add(streamWrite))
		_, err := fmt.Fprint(w, text)
		return err == nil && rc.Flush() == nil
	}
	rc.SetReadDeadline(time.Time{})
	look := time.NewTicker(lookTime)
	defer look.Stop()
	var last []byte
	spoke, queue := time.Now(), 0
	for {
		changed := c.Broker.Changed()
		now := c.news(o)
		now.Queue = queue
		raw, _ := json.Marshal(now)
		switch {
		case string(raw) != string(last):
			if !send("data: " + string(raw) + "\n\n") {
				return
			}
			last, spoke = raw, time.Now()
		case time.Since(spoke) > beatTime:
			if !send(":\n\n") {
				return
			}
			spoke = time.Now()
		}
		select {
		case <-changed:
			queue++
		case <-look.C:
		case <-r.Context().Done():
			return
		case <-c.stop:
			return
		}
	}
}

func (c *Console) news(o *opened) news {
	st := c.Broker.Status()
	return news{Instance: st.BrokerInstance, State: st.State, Pending: st.Pending, Sessions: st.Sessions, Paused: st.Paused,
		Reading: o != nil && o.page.Reading()}
}

func (c *Console) startStream(o *opened) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o != nil {
		o.stream++
		return true
	}
	if c.streams >= maxStreams {
		return false
	}
	c.streams++
	return true
}

func (c *Console) endStream(o *opened) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o != nil {
		o.stream--
		o.used = time.Now()
		return
	}
	c.streams--
}
