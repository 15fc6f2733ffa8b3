//go:build linux

package ledger

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"golang.org/x/sys/unix"
)

// yardstick appends 256 bytes and syncs them.
func yardstick(b *testing.B) func() {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	line := make([]byte, 256)
	return func() {
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}

// BenchmarkBegin is one caller that takes an action and ends it; the outcome
// rides on the next intent. In turns with it one fdatasync is measured, so
// that the ratio stands on a busy machine too.
func BenchmarkBegin(b *testing.B) {
	l := newInstallation(b).open(b)
	syncOnce := yardstick(b)
	commits := l.Commits()
	var begins, syncs []time.Duration
	for b.Loop() {
		start := time.Now()
		syncOnce()
		synced := time.Now()
		op := newOperation()
		if _, err := l.Begin(b.Context(), op, row("intent"), nil); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		l.End(op.ID, action.Completed, "", row("outcome"))
		syncs = append(syncs, synced.Sub(start))
		begins = append(begins, begun.Sub(synced))
	}
	b.ReportMetric(median(begins), "begin-ns")
	b.ReportMetric(median(syncs), "sync-ns")
	b.ReportMetric(median(begins)/median(syncs), "begin/sync")
	b.ReportMetric(float64(l.Commits()-commits)/float64(b.N), "commits/op")
}

// BenchmarkBegin32 is 32 callers at once, measured as a rate.
func BenchmarkBegin32(b *testing.B) {
	l := newInstallation(b).open(b)
	commits := l.Commits()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				op := newOperation()
				if _, err := l.Begin(b.Context(), op, row("intent"), nil); err != nil {
					b.Error(err)
					return
				}
				l.End(op.ID, action.Completed, "", row("outcome"))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	perAction := float64(b.Elapsed()) / float64(b.N)
	syncOnce := yardstick(b)
	var syncs []time.Duration
	for range 300 {
		start := time.Now()
		syncOnce()
		syncs = append(syncs, time.Since(start))
	}
	b.ReportMetric(median(syncs), "sync-ns")
	b.ReportMetric(perAction/median(syncs), "action/sync")
	b.ReportMetric(float64(l.Commits()-commits)/float64(b.N), "commits/op")
}
