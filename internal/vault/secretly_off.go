//go:build !goexperiment.runtimesecret

package vault

// secretly runs f. Built with GOEXPERIMENT=runtimesecret it erases what f
// leaves behind; without it, copies of keys inside of ciphers stay in freed
// memory until that is used again.
func secretly(f func()) { f() }
