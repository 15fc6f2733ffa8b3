//go:build race

package yetttest

const raceEnabled = true
