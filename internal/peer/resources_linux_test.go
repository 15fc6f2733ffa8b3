package peer

import (
	"runtime"
	"testing"
)

// Thousands of idle sessions hold a process each, or two: what one costs is
// bounded, and Close gives it all back.
func TestProcess_CostOfHolding(t *testing.T) {
	const (
		many        = 300
		descriptors = 2
		memory      = 12 << 10 // of the 40 KiB of a session with a shim and its agent
		others      = 20       // what tests before this one may still open and close
	)
	_, c := connect(t, program(t))
	of(t, c) // what is made once
	fds, before := openDescriptors(t), memoryInUse()
	held := make([]*Process, many)
	for i := range held {
		p, err := Of(c)
		if err != nil {
			t.Fatal(err)
		}
		held[i] = p
	}
	if n := openDescriptors(t) - fds; n > many*descriptors+others {
		t.Errorf("%d descriptors for %d processes, want at most %d each", n, many, descriptors)
	}
	each := (memoryInUse() - before) / many
	t.Logf("%d bytes each", each)
	if each > memory {
		t.Errorf("%d bytes each, want at most %d", each, memory)
	}
	for _, p := range held {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := openDescriptors(t) - fds; n > others {
		t.Errorf("%d descriptors are left over", n)
	}
}

// memoryInUse is of the heap and of stacks, since each process has a goroutine.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
