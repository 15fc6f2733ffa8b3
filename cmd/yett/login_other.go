//go:build !darwin

package main

import "github.com/yett-broker/yett/internal/loginkeys"

// openLogin refuses: the login keychain and Touch ID are of macOS.
func openLogin() (loginkeys.Store, error) { return loginkeys.Store{}, errNotMac }
