// Package suspend tells the broker that the machine is about to sleep, so that
// keys are forgotten before memory is written out or the lid is closed on them,
// and on macOS, where it is wanted, that the screen was locked.
//
// On Linux it hears PrepareForSleep of logind on the system's bus, and holds a
// delay lock of logind, so that the machine sleeps only after the broker has
// paused. Whatever the bus does not tell (there is none, it has just died, the
// kernel was told directly) is noticed when the machine is awake again, by the
// difference of the two clocks of which one stands still while it sleeps.
//
// On macOS it registers with IOKit, which asks before each sleep and waits for
// the answer for half a minute. The calls come on a queue of the system, so that
// no thread has to wait in a run loop. The clocks are compared there too. That
// the screen was locked is announced between programs only to those that run
// such a loop on their first thread, which Go does not leave to anybody; so the
// state of the session is looked at once a second instead.
//
// The bus is trusted to name who sent a signal, and logind to say when the
// machine sleeps. Nobody else on the bus is: signals of other senders are
// dropped, and the connection that listens takes no descriptors from anybody.
// Nothing here holds up the broker: each step with the bus has two seconds, in
// a goroutine of its own, and without a bus the broker goes on.
package suspend

// SystemBus is where the system's bus listens. The environment does not choose it.
const SystemBus = "/run/dbus/system_bus_socket"
