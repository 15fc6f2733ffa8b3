package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// plan tries rows of several packages at a time, and of one package only one
// row after another, as go test does: tests of a package may share an account,
// a port or a limit of the kernel, and would fail for that alone.
type plan struct {
	root     string
	parallel int
	seen     *results

	mu       sync.Mutex
	progress io.Writer
	begun    time.Time
	done     int
	all      int
}

// work is a row that is to be tried, and where its results go.
type work struct {
	control
	place int
	row   string
}

// try returns the results of the rows in their order.
func (p *plan) try(ctx context.Context, rows []control) ([]result, error) {
	found := make([][]result, len(rows))
	queues := map[string][]work{}
	seen := 0
	for i, c := range rows {
		row, err := p.seen.meaning(p.root, c)
		if err != nil { // the row does not fit the tree any more
			found[i] = c.results(func(string) (bool, string) { return false, err.Error() })
			p.say("%s: %s: %v\n", c.room, c.Name, err)
			continue
		}
		if before, ok := p.seen.seen[row]; ok {
			found[i] = before
			seen++
			continue
		}
		queues[c.Package] = append(queues[c.Package], work{c, i, row})
		p.all++
	}
	if seen > 0 {
		p.say("%d of %d rows were seen before\n", seen, len(rows))
	}
	before := map[string]map[string]string{}
	err := p.eachPackage(ctx, queues, func(ctx context.Context, pkg string, w []work) error {
		ends, err := p.tryUnchanged(ctx, pkg, w)
		p.mu.Lock()
		defer p.mu.Unlock()
		before[pkg] = ends
		return err
	})
	if err != nil {
		return nil, err
	}
	p.begun = time.Now()
	err = p.eachPackage(ctx, queues, func(ctx context.Context, pkg string, queue []work) error {
		for _, w := range queue {
			start := time.Now()
			found[w.place] = tryRow(ctx, p.root, w.control, before[pkg])
			if ctx.Err() != nil { // what it would say is not the test's doing
				return ctx.Err()
			}
			if err := p.tell(w, found[w.place], time.Since(start)); err != nil {
				return err
			}
		}
		return nil
	})
	return slices.Concat(found...), err
}

// eachPackage calls do for every package, for the longest queues first. The
// first error ends what runs.
func (p *plan) eachPackage(ctx context.Context, queues map[string][]work, do func(context.Context, string, []work) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var packages []string
	for pkg := range queues {
		packages = append(packages, pkg)
	}
	slices.SortFunc(packages, func(a, b string) int { return len(queues[b]) - len(queues[a]) })
	next := make(chan string, len(packages))
	for _, pkg := range packages {
		next <- pkg
	}
	close(next)
	var group sync.WaitGroup
	for range p.parallel {
		group.Go(func() {
			for pkg := range next {
				if ctx.Err() != nil {
					return
				}
				if err := do(ctx, pkg, queues[pkg]); err != nil {
					stop(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// tell keeps what became of a row and says how far the run is.
func (p *plan) tell(w work, results []result, took time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	left := time.Since(p.begun) / time.Duration(p.done) * time.Duration(p.all-p.done)
	fmt.Fprintf(p.progress, "%d of %d, about %s left: %s: %s (%.0f s)\n",
		p.done, p.all, left.Round(time.Second), w.room, w.Name, took.Seconds())
	for _, r := range results {
		if !r.Failed {
			fmt.Fprintf(p.progress, "  %s: %s\n", r.Test, r.answer())
		}
	}
	return p.seen.add(w.row, results)
}

func (p *plan) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.progress, format, args...)
}
