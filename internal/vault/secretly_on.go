//go:build goexperiment.runtimesecret

package vault

import "runtime/secret"

// secretly runs f and lets the runtime erase what f leaves in registers, on the
// stack and, once it is collected, in the heap: the copies of keys that ciphers
// and key pairs hold and nobody can wipe. What f allocates must not outlive it
// as anything but a copy.
func secretly(f func()) { secret.Do(f) }
