package broker

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errWrong = errors.New("the proof is wrong")

// Guessing slows down to one try in thirty seconds, and no further.
func TestGuessingOfProofsSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b backoff
		gone := make(chan struct{})
		try := func(result error) time.Duration {
			began := time.Now()
			if err := b.try("", gone, func() error { return result }); err != result {
				t.Errorf("the result of the check is %v, want %v", err, result)
			}
			return time.Since(began)
		}
		for i, want := range []time.Duration{0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30} {
			if got := try(errWrong); got != want*time.Second {
				t.Errorf("wrong try %d waited %v, want %v", i+1, got, want*time.Second)
			}
		}
		time.Sleep(20 * time.Second) // time that has passed anyway counts
		if got := try(nil); got != 10*time.Second {
			t.Errorf("the right proof waited %v", got)
		}
		for i := range 3 {
			if got := try(errWrong); got != 0 {
				t.Errorf("wrong try %d after a right one waited %v", i+1, got)
			}
		}
		if got := try(nil); got != time.Second {
			t.Errorf("a right proof after three wrong ones waited %v", got)
		}
	})
}

// Hanging up does not make a guess free.
func TestAProofIsNotTriedEarlierByHangingUp(t *testing.T) {
	var b backoff
	for range 3 {
		b.try("", nil, func() error { return errWrong })
	}
	gone := make(chan struct{})
	close(gone)
	if err := b.try("", gone, func() error { t.Error("the proof was tried"); return nil }); err == nil {
		t.Error("a try that was not made succeeded")
	}
}

// Tries come one at a time, so that many processes guess no faster than one.
func TestProofsAreTriedOneAtATime(t *testing.T) {
	var b backoff
	var running, tried atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			b.try(strconv.Itoa(i), nil, func() error {
				if running.Add(1) != 1 {
					t.Error("two proofs are tried at once")
				}
				tried.Add(1)
				running.Add(-1)
				return nil
			})
		})
	}
	wg.Wait()
	if tried.Load() != 50 {
		t.Errorf("%d tries", tried.Load())
	}
}
