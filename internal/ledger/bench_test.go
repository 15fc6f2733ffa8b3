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

// slowStore is a disk whose sync takes longer.
type slowStore struct {
	store
	sync time.Duration
}

func (s slowStore) Sync() error {
	err := s.store.Sync()
	time.Sleep(s.sync)
	return err
}

// BenchmarkShared is what callers at once gain by sharing syncs: the rate of 32
// beside that of one, on this disk, and on one whose sync takes some 300 µs
// longer. Where a sync costs less than a row does, there is little to share.
func BenchmarkShared(b *testing.B) {
	for name, slower := range map[string]time.Duration{"this disk": 0, "slow disk": 300 * time.Microsecond} {
		b.Run(name, func(b *testing.B) {
			l := newInstallation(b).open(b)
			l.w.journal.file = slowStore{l.w.journal.file, slower}
			var one, all time.Duration
			for b.Loop() {
				one += actAtOnce(b, l, 1, 500)
				all += actAtOnce(b, l, 32, 4000)
			}
			b.ReportMetric(500*float64(b.N)/one.Seconds(), "one/s")
			b.ReportMetric(4000*float64(b.N)/all.Seconds(), "32/s")
			b.ReportMetric(8*float64(one)/float64(all), "32/one")
		})
	}
}

func actAtOnce(b *testing.B, l *Ledger, callers, actions int) time.Duration {
	var left atomic.Int64
	left.Store(int64(actions))
	begin := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				op := newOperation()
				op.ID = action.NewOrderedID("op_", time.Now()) // as a broker's are
				if _, err := l.Begin(b.Context(), op, row("intent"), nil); err != nil {
					b.Error(err)
					return
				}
				l.End(op.ID, action.Completed, "", row("outcome"))
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if err := l.Drain(); err != nil { // else it is in the next one's way
		b.Error(err)
	}
	return took
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
