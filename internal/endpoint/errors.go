package endpoint

import "fmt"

// PathTooLongError is a socket path that no socket address can hold.
type PathTooLongError struct {
	Path          string
	Length, Limit int // bytes
}

func (e *PathTooLongError) Error() string {
	return fmt.Sprintf("socket path %s has %d bytes, the system allows %d", e.Path, e.Length, e.Limit)
}

// UnsafeError is something on the way to the socket that is not what the
// contract says. It was left as it was found.
type UnsafeError struct {
	Path string
	Why  string
}

func (e *UnsafeError) Error() string { return fmt.Sprintf("%s is not safe to use: %s", e.Path, e.Why) }

// Holder is the broker that holds an endpoint, as far as it is known: PID 0
// and an empty Executable are unknown.
type Holder struct {
	PID        int
	Executable string
}

func (h Holder) String() string {
	switch {
	case h.PID == 0:
		return "another process"
	case h.Executable == "":
		return fmt.Sprintf("process %d", h.PID)
	}
	return fmt.Sprintf("process %d (%s)", h.PID, h.Executable)
}

// InUseError says that another broker holds the endpoint or the data
// directory.
type InUseError struct {
	Path      string // the lock
	Holder    Holder
	Answering bool // it took a connection and reacted to it within two seconds
}

func (e *InUseError) Error() string {
	s := fmt.Sprintf("%s is held by %s", e.Path, e.Holder)
	if !e.Answering {
		s += ", which is running but not answering"
	}
	return s
}

// Cause is why the broker cannot be used.
type Cause string

const (
	NotRunning   Cause = "not_running"   // there is no socket
	Stale        Cause = "stale"         // there is a socket, and nobody listens on it
	Unsafe       Cause = "unsafe"        // the way to the socket is not the contract's
	NotAnswering Cause = "not_answering" // its queue is full and stays full
	Imposter     Cause = "imposter"      // whoever listens was not proven to be our broker
)

// UnavailableError is a broker that was not reached or not proven. Nothing was
// sent.
type UnavailableError struct {
	Cause  Cause
	Socket string
	Err    error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("broker at %s is unavailable (%s): %v", e.Socket, e.Cause, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }
