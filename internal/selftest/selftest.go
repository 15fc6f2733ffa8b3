// Package selftest tries, on the machine that it runs on and with real
// processes, what Yett asks of the system: who is at a socket, that a death, an
// exec and a passed descriptor are noticed, and what stands behind that. It
// changes nothing but a private temporary directory, which it removes.
//
// Its log is meant to be sent: for a system that the people who build Yett do
// not have, it is the proof that the code does there what it was written to do.
// So each check says in one line what was found, with the raw error number
// where there is one, and names no file of the person's but the program itself.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// Result of a check.
type Result string

const (
	Pass Result = "PASS"
	Fail Result = "FAIL"
	Skip Result = "SKIP" // cannot be tried here; Found says why
)

// Check is one line of the log.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	Found  string `json:"found"`
	Code   int    `json:"code,omitempty"` // the system's error number, if one came
}

// errInteractive is the reason of a check that was not allowed.
const errInteractive = skipped("tried with --interactive only")

// deadline bounds one check.
const deadline = 10 * time.Second

// trial is one check before it has run. It returns what it found.
type trial struct {
	name string
	try  func(ctx context.Context, s *setting) (string, error)
}

// setting is what the checks share.
type setting struct {
	program     string // this yett, which also plays the other side
	dir         string // private, removed afterwards
	interactive bool   // a person is there, and said that they may be asked
}

// skipped is the error of a check that cannot be tried here.
type skipped string

func (s skipped) Error() string { return string(s) }

// Run makes every check, one after another, and hands each result over as it
// comes. program is the path of yett; interactive allows the checks that ask the
// person or for a moment change something outside of the directory. It reports
// whether none failed.
func Run(ctx context.Context, program string, interactive bool, report func(Check)) (bool, error) {
	dir, err := os.MkdirTemp("", "yett-selftest-") // mode 0700
	if err != nil {
		return false, fmt.Errorf("making a directory for the checks: %w", err)
	}
	defer os.RemoveAll(dir)
	s := &setting{program: program, dir: dir, interactive: interactive}
	ok := true
	for _, t := range slices.Concat(portable(), ofSystem(), ofPerson()) {
		c := t.run(ctx, s)
		ok = ok && c.Result != Fail
		report(c)
	}
	return ok, ctx.Err()
}

// run makes one check within its deadline.
func (t trial) run(ctx context.Context, s *setting) Check {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	found, err := t.try(ctx, s)
	c := Check{Name: t.name, Result: Pass, Found: found}
	var why skipped
	var errno syscall.Errno
	switch {
	case errors.As(err, &why):
		c.Result, c.Found = Skip, why.Error()
	case err != nil:
		c.Result, c.Found = Fail, err.Error()
		if errors.As(err, &errno) {
			c.Code = int(errno)
		}
	}
	return c
}
