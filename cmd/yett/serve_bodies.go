package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/bodies"
)

// keptBodies is for how long, and to which total, bodies of answers are kept.
type keptBodies struct {
	age time.Duration
	mib int64
}

// Bounds of both. An agent reads a body after the action has ended, and one
// answer has up to 64 MiB.
const (
	leastAge, mostAge = time.Hour, 90 * 24 * time.Hour
	leastMiB, mostMiB = 128, 1 << 20
)

func (k *keptBodies) add(c *cobra.Command) {
	c.Flags().DurationVar(&k.age, "keep-bodies", bodies.DefaultMaxAge, "keep the bodies of answers for this time")
	c.Flags().Int64Var(&k.mib, "keep-bodies-mib", bodies.DefaultMaxTotal>>20, "keep at most this many `MiB` of them")
}

func (k *keptBodies) check() error {
	if k.age < leastAge || k.age > mostAge {
		return usageError{errors.New("--keep-bodies is a time from 1h to 2160h (90 days)")}
	}
	if k.mib < leastMiB || k.mib > mostMiB {
		return usageError{errors.New("--keep-bodies-mib is a number from 128 to 1048576 (1 TiB)")}
	}
	return nil
}

func (k *keptBodies) options() bodies.Options {
	return bodies.Options{MaxAge: k.age, MaxTotal: k.mib << 20}
}
