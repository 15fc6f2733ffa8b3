package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/durable"
	"github.com/yett-broker/yett/internal/ledger"
)

// The ledger beside its limits, without a broker:
//
//	intent        ledger.Begin: a sealed row and an operation, durable
//	limit         one fdatasync of 256 appended bytes; the same of 1,280 bytes
//	              in a file that was written full of zeros, or only reserved
//	32 callers    intents with their outcomes
//	limit         32 callers that share the syncs of a file, and do nothing else

// ledgerHome is a ledger in a scratch directory, with its key.
type ledgerHome struct {
	dir             string
	private, public []byte
}

func newLedgerHome(dir string) (ledgerHome, error) {
	h := ledgerHome{dir: dir}
	var err error
	h.private, h.public, err = ledger.GenerateAuditKey()
	return h, err
}

func (h ledgerHome) open() (*ledger.Ledger, error) {
	l, err := ledger.Open(h.dir, ledger.Options{AuditPublicKey: h.public})
	if err != nil {
		return nil, err
	}
	o, err := ledger.NewOpener(h.private)
	if err == nil {
		err = l.CheckOperations(context.Background(), o, 0)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

var evidence, request = json.RawMessage(`{"pid":4711,"uid":1000,"exe":"/usr/bin/agent","sha256":"` + fmt.Sprintf("%064d", 0) + `"}`),
	json.RawMessage(`{"digest":"` + fmt.Sprintf("%064d", 0) + `","action":{"method":"GET","path":"/v1/document"}}`)

// act is one action as the ledger sees it; only the intent is waited for.
func act(l *ledger.Ledger) error {
	id, err := intend(l)
	if err == nil {
		end(l, id)
	}
	return err
}

func intend(l *ledger.Ledger) (id string, err error) {
	op := ledger.Operation{ID: action.NewOrderedID("op_", time.Now()), Session: "session_" + rand.Text(), Caller: "boot:1", Digest: make([]byte, 32), CreatedAt: time.Now()}
	rand.Read(op.Digest)
	_, err = l.Begin(context.Background(), op, ledger.Row{Kind: "intent", Verified: evidence, Request: request}, nil)
	return op.ID, err
}

func end(l *ledger.Ledger, id string) {
	l.End(id, action.Completed, "", ledger.Row{Kind: "outcome", Verified: evidence, Outcome: json.RawMessage(`{"state":"completed"}`)})
}

// measureLedger prints what the ledger costs, ratios first.
func measureLedger(rounds, rows int) error {
	dir, err := os.MkdirTemp("", "yl")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := measureIntents(dir, rounds); err != nil {
		return err
	}
	return measureSize(dir, rows)
}

func measureIntents(dir string, rounds int) error {
	h, err := newLedgerHome(filepath.Join(dir, "small"))
	if err != nil {
		return err
	}
	l, err := h.open()
	if err != nil {
		return err
	}
	defer l.Close()
	appended, err := newSyncer(dir)
	if err != nil {
		return err
	}
	defer appended.Close()
	zeroed, err := newOverwriter(filepath.Join(dir, "zeroed"), false)
	if err != nil {
		return err
	}
	defer zeroed.f.Close()
	reserved, err := newOverwriter(filepath.Join(dir, "reserved"), true)
	if err != nil {
		return err
	}
	defer reserved.f.Close()
	id := ""
	kinds := []struct {
		name  string
		call  func() error
		after func() // not timed
		all   []time.Duration
	}{
		{name: "fdatasync, 256 bytes appended", call: appended.once},
		{name: "fdatasync, 1,280 bytes over zeros", call: zeroed.once},
		{name: "fdatasync, 1,280 bytes, reserved", call: reserved.once},
		{name: "intent, one caller", call: func() (err error) { id, err = intend(l); return err }, after: func() { end(l, id) }},
	}
	var one, many, raw, rawOne []float64
	for i := range rounds + 1 {
		for k := range kinds {
			begin := time.Now()
			for range 200 {
				start := time.Now()
				if err := kinds[k].call(); err != nil {
					return fmt.Errorf("%s: %w", kinds[k].name, err)
				}
				if i > 0 {
					kinds[k].all = append(kinds[k].all, time.Since(start))
				}
				if kinds[k].after != nil {
					kinds[k].after()
				}
			}
			if k == len(kinds)-1 && i > 0 {
				one = append(one, 200/time.Since(begin).Seconds())
			}
		}
		r, err := rateOf(32, 3200, func() error { return act(l) })
		if err != nil {
			return err
		}
		shared := &sharedSync{file: zeroed}
		s, err := rateOf(32, 3200, shared.commit)
		if err != nil {
			return err
		}
		s1, err := rateOf(1, 800, shared.commit)
		if err != nil {
			return err
		}
		if i > 0 {
			many, raw, rawOne = append(many, r), append(raw, s), append(rawOne, s1)
		}
	}
	sync, intent := median(kinds[0].all), median(kinds[3].all)
	fmt.Printf("%.2f×  intent / one fdatasync                          (target 1.6)\n", ratio(intent, sync))
	fmt.Printf("%.1f×   rate of actions, 32 callers / one               (target 8 where a sync is what costs)\n", middle(many)/middle(one))
	fmt.Printf("%.1f×   the same of a bare group commit\n", middle(raw)/middle(rawOne))
	fmt.Printf("%.2f   rate of actions / a bare group commit, 32 callers\n\n", middle(many)/middle(raw))
	for _, k := range kinds {
		fmt.Printf("%-34s n=%-5d median %-10v p99 %v\n", k.name, len(k.all), round(median(k.all)), round(percentile(k.all, 0.99)))
	}
	fmt.Printf("%-34s one %.0f/s, 32 callers %.0f/s; a bare group commit %.0f/s\n\n", "actions", middle(one), middle(many), middle(raw))
	return nil
}

// overwriter writes over a file that is there already.
type overwriter struct {
	f  *os.File
	at int64
}

const overwritten = 8 << 20

func newOverwriter(path string, onlyReserved bool) (*overwriter, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if onlyReserved {
		err = errors.Join(reserve(f, overwritten), f.Sync())
	} else {
		err = durable.Zeros(f, overwritten)
	}
	return &overwriter{f: f}, err
}

func (o *overwriter) once() error { return o.write(make([]byte, 1280)) }

func (o *overwriter) write(b []byte) error {
	if o.at+int64(len(b)) > overwritten {
		o.at = 0
	}
	for i := range b {
		b[i] = byte(i) + 1
	}
	if _, err := o.f.WriteAt(b, o.at); err != nil {
		return err
	}
	o.at += int64(len(b))
	return durable.Datasync(o.f)
}

// sharedSync is a group commit and nothing else: two records of a group go
// into one write.
type sharedSync struct {
	mu      sync.Mutex
	leading sync.Mutex
	file    *overwriter
	next    *sharedGroup
}

type sharedGroup struct {
	size int
	once sync.Once
	err  error
}

func (s *sharedSync) commit() error {
	s.mu.Lock()
	if s.next == nil {
		s.next = &sharedGroup{}
	}
	g := s.next
	g.size += 2 * 1280
	s.mu.Unlock()
	s.leading.Lock()
	defer s.leading.Unlock()
	g.once.Do(func() {
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		g.err = s.file.write(make([]byte, g.size))
	})
	return g.err
}

func rateOf(callers, calls int, call func() error) (float64, error) {
	var left atomic.Int64
	left.Store(int64(calls))
	failed := make(chan error, callers)
	var wg sync.WaitGroup
	begin := time.Now()
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(calls) / time.Since(begin).Seconds(), nil
	}
}

// measureSize fills a ledger, starts with it and verifies it.
func measureSize(dir string, rows int) error {
	h, err := newLedgerHome(filepath.Join(dir, "big"))
	if err != nil {
		return err
	}
	l, err := h.open()
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := rateOf(64, rows/2, func() error { return act(l) }); err != nil {
		return errors.Join(err, l.Close())
	}
	filled := time.Since(begin)
	if err := l.Close(); err != nil {
		return err
	}
	begin = time.Now()
	if l, err = h.open(); err != nil {
		return err
	}
	started := time.Since(begin)
	key, err := ledger.NewLogKey(make([]byte, 32))
	if err == nil {
		_, _, err = l.SignHead(key, 1)
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}
	if err := measureProofs(h.dir, int64(rows), key.VerifierKey()); err != nil {
		return err
	}
	fmt.Printf("%d rows: written in %v (%.0f actions/s, database included), start %v\n",
		rows, filled.Round(time.Millisecond), float64(rows/2)/filled.Seconds(), started.Round(time.Millisecond))
	o, err := ledger.NewOpener(h.private)
	if err != nil {
		return err
	}
	for _, with := range []struct {
		name string
		o    *ledger.Opener
	}{{"structure", nil}, {"with the key", o}} {
		debug.FreeOSMemory()
		before := forgetPeak()
		begin := time.Now()
		r, err := ledger.Verify(context.Background(), h.dir, with.o, nil)
		if err != nil || !r.OK {
			return fmt.Errorf("verifying: %v %w", r.Problems, err)
		}
		took := time.Since(begin)
		fmt.Printf("verify, %-14s %v, %.0f rows/s, memory %d MiB more than before\n", with.name,
			took.Round(time.Millisecond), float64(r.Entries)/took.Seconds(), (peak()-before)>>20)
	}
	return nil
}

// measureProofs makes and checks proofs of rows all over a ledger.
func measureProofs(dir string, rows int64, key string) error {
	var made, checked []time.Duration
	hashes, size := 0, 0
	for i := range int64(50) {
		begin := time.Now()
		p, err := ledger.Prove(context.Background(), dir, 1+i*(rows-1)/50)
		if err != nil {
			return err
		}
		made = append(made, time.Since(begin))
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		begin = time.Now()
		if _, _, err := ledger.ParseProof(text, key); err != nil {
			return err
		}
		checked = append(checked, time.Since(begin))
		hashes, size = max(hashes, len(p.Hashes)), max(size, len(text))
	}
	fmt.Printf("proof of a row: %d hashes, %d bytes with the row; made in %v, checked in %v (medians, n=50)\n",
		hashes, size, round(median(made)), round(median(checked)))
	return nil
}

// idleAfter is when Go has given back what deriving the keys took.
const idleAfter = 3 * time.Second

// measureIdle prints what a broker has resident that was unlocked and does nothing.
func (b *bench) measureIdle() error {
	time.Sleep(idleAfter) // it was unlocked a moment ago
	kib, err := b.resident()
	if err == nil {
		fmt.Printf("%.1f MiB resident in a broker %v after it was unlocked\n", float64(kib)/1024, idleAfter)
	}
	return err
}

// measureConcurrent prints brokered GETs beside direct ones.
func (b *bench) measureConcurrent(calls int) error {
	for _, clients := range []int{1, 16, 64} {
		r, err := b.concurrent(clients, max(20, calls/clients))
		if err != nil {
			return err
		}
		fmt.Printf("%.2f   rate of brokered GETs / direct, %d clients\n", r, clients)
	}
	return nil
}

func middle(list []float64) float64 {
	var d []time.Duration
	for _, f := range list {
		d = append(d, time.Duration(f*1000))
	}
	return float64(median(d)) / 1000
}
