//go:build !linux

package main

import (
	"errors"
	"time"
)

var errNoPidfd = errors.New("only Linux has a pidfd, and only there the broker runs")

func (b *bench) killAgents(int) (ends, bare []time.Duration, err error) { return nil, nil, errNoPidfd }

func playAgent(string) error { return errNoPidfd }
