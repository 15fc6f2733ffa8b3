//go:build !linux

package yetttest

func mountSmallDisk(string) error { return nil }

func unmountSmallDisk() {}
