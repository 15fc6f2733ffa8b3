// Kernels runs the tests of caller evidence under Debian's own kernels, each
// booted in a virtual machine: one below the floor, where the programs must
// refuse in so many words, one that knows pidfs but not yet PIDFD_GET_INFO, and
// a new one.
//
// The machine has no disk and no network. It starts from an initramfs that
// holds nothing but static programs: this one as its init, yett, yett-mcp,
// compiled tests, and busybox for the tests that want a shell. Init runs the jobs of jobs.json as root or as an ordinary
// account, writes one JSON object a line to the second serial port, and turns
// the machine off. What a job says is judged here, outside:
//
//	{"job":"peer as root","line":"=== RUN   TestX"}   one line that it printed
//	{"job":"peer as root","exit":0,"seconds":1.5}     its end
//	{"done":true}                                     the end of the machine's work
//
// A test that was skipped everywhere has not passed: it must stand in the table
// of what cannot be tested this way, with the reason, or the run fails. Kernels
// are packages of the Debian mirror that this system's apt is set up for; they
// are fetched into kernels/cache by apt itself, which checks their signatures.
// The system's own sources and packages stay as they are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

func main() {
	if os.Getpid() == 1 {
		guest()
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == workArgument {
		return work(args[1])
	}
	flags := flag.NewFlagSet("kernels", flag.ContinueOnError)
	flags.SetOutput(stderr)
	match := flags.String("run", "", "only kernels whose name matches `regexp`")
	update := flags.Bool("update", false, "ask the mirror for newer kernels, although some are in the cache")
	verbose := flags.Bool("v", false, "print what the jobs print")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	wanted, err := regexp.Compile(*match)
	if err != nil || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "kernels: only flags, and a regular expression with -run")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := runAll(ctx, wanted, *update, *verbose, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "kernels:", err)
		return 1
	}
	if !ok {
		return 1
	}
	return 0
}

// runAll boots each kernel in turn and reports whether all came out as it must.
func runAll(ctx context.Context, wanted *regexp.Regexp, update, verbose bool, stdout io.Writer) (bool, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, root, dir); err != nil {
		return false, err
	}
	ok, booted, how := true, 0, ""
	for _, k := range kernels {
		if !wanted.MatchString(k.name) {
			continue
		}
		fetched, err := fetch(ctx, filepath.Join(root, "kernels", "cache"), k, update)
		if err != nil {
			return false, fmt.Errorf("fetching kernel %s: %w", k.name, err)
		}
		initrd := filepath.Join(dir, "initrd-"+k.name)
		if err := pack(initrd, dir, fetched.busybox, k.jobs); err != nil {
			return false, err
		}
		if how == "" {
			how = accelerator(ctx, dir, fetched.image)
		}
		said, err := boot(ctx, how, dir, fetched.image, initrd)
		if err != nil {
			return false, fmt.Errorf("kernel %s: %w", k.name, err)
		}
		booted++
		if verbose {
			said.print(stdout)
		}
		verdict, err := judge(ctx, k, said)
		if err != nil {
			return false, fmt.Errorf("kernel %s: %w", k.name, err)
		}
		verdict.print(stdout, k, fetched.version)
		ok = ok && verdict.ok()
	}
	if booted == 0 {
		return false, errors.New("no kernel has such a name")
	}
	return ok, nil
}
