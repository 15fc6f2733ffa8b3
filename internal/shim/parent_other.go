//go:build !linux

package shim

import "github.com/yett-broker/yett/internal/peer"

// awaitDeath refuses: this system's way is not used yet.
func awaitDeath(int) error { return peer.ErrUnsupported }
