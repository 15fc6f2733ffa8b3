// Package notify tells the desktop that cards wait, by the session bus and
// org.freedesktop.Notifications. It can decide nothing: a notification has one
// action, which opens the console's page, and that asks for a proof.
//
// It trusts nobody on the bus. Any process of the account may take the place of
// the notification service, see what is said and ask for the page to be opened;
// so nothing is said but two words and names of capabilities, which every
// process of the account may ask the broker for. No text of an agent goes there.
//
// Each step with the bus is bounded, and none is on the way of a request.
package notify

import "time"

// patience bounds each step with the bus.
const patience = 2 * time.Second

// Waiting is what waits now.
type Waiting struct {
	Count int
	ID    string // of the first
	Tag   string // its two words
	What  string // names of capabilities
	URL   string // of its card
}

// Source says what waits. Changed returns a channel that is closed at the next
// change. Reached is called when there is a desktop that takes notifications;
// what it returns is called when it has gone.
type Source struct {
	Changed func() <-chan struct{}
	Waiting func() Waiting
	Reached func() (gone func())
}
