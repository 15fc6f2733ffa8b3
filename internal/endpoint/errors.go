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

// InheritedError is a socket of the service manager that is not the contract's.
// It was left as it was found: the manager owns it.
type InheritedError struct{ Why string }

func (e *InheritedError) Error() string {
	return "the socket that the service manager passed cannot be used: " + e.Why
}

// LostError says that the path no longer leads to the listener, so that nobody
// can reach it any more.
type LostError struct {
	Path string
	Why  string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s no longer leads to this broker: %s", e.Path, e.Why)
}

// Cause is why the broker cannot be used.
type Cause string

const (
	NotRunning   Cause = "not_running"   // there is no socket
	Stale        Cause = "stale"         // there is a socket, and nobody listens on it
	Starting     Cause = "starting"      // the service manager listens, and the broker has not taken over yet
	Forbidden    Cause = "forbidden"     // this process may not go there, as in a sandbox
	Unsafe       Cause = "unsafe"        // the way to the socket is not the contract's
	NotAnswering Cause = "not_answering" // it is stopped, its queue stays full, or it does not greet
	Imposter     Cause = "imposter"      // whoever listens was not proven to be our broker
)

// UnavailableError is a broker that was not reached or not proven. Nothing but
// a greeting was sent.
type UnavailableError struct {
	Cause  Cause
	Socket string
	Err    error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("broker at %s is unavailable (%s): %v", e.Socket, e.Cause, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }
