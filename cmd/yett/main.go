// Command yett is the command line of Yett and, as yett serve, its resident
// broker. One file has one subcommand; advice to the person is chosen here and
// nowhere deeper.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// version is set by the linker: -X main.version=…
var version = "0.0.0-dev"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin, stdout, stderr *os.File) int {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	a := &app{stdin: stdin, stdout: &output{File: stdout}, stderr: stderr, passFD: -1, login: openLogin}
	defer a.wipe()
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(a.stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.stdout.lost()
	}
	return a.finish(command, args, err)
}

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitUnavailable = 4
	exitLocked      = 5
	exitWaited      = 6
)

// errWaited is returned when the command itself waited for a person in vain.
var errWaited = errors.New("nobody decided in time")

// reported is a failure whose output has been printed already.
type reported struct{ code int }

func (reported) Error() string { return "reported" }

// finish prints a failure and chooses the exit code: the only place that does.
func (a *app) finish(command *cobra.Command, args []string, err error) int {
	var fail *wire.Error
	var usage usageError
	var done reported
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &done):
		return done.code
	case errors.As(err, &usage):
		a.json = a.json || slices.Contains(args, "--json") // a flag before it may have ended the parsing
		a.printError(&wire.Error{Code: "usage", Message: usage.Error(), NextStep: rightForm(command)})
		return exitUsage
	case errors.Is(err, errWaited):
		a.printError(&wire.Error{Code: wire.ReasonApprovalExpired, Message: err.Error(), NextStep: "List what waits: yett pending."})
		return exitWaited
	case !errors.As(err, &fail):
		fail = &wire.Error{Code: wire.CodeInternal, Message: err.Error()}
	}
	a.printError(fail)
	switch fail.Code {
	case wire.CodeUnavailable:
		return exitUnavailable
	case wire.CodeLocked:
		return exitLocked
	case wire.CodeBadRequest, wire.CodeInternal:
		return exitFailed
	}
	return exitRefused
}

func (a *app) printError(e *wire.Error) {
	told := *e
	told.NextStep = a.here(e.NextStep)
	e = &told
	if a.json {
		printJSON(a.stderr, map[string]any{"error": e})
		return
	}
	fmt.Fprintf(a.stderr, "yett: %s\n", approval.Printable(e.Message))
	if e.NextStep != "" {
		fmt.Fprintf(a.stderr, "  next: %s\n", approval.Printable(e.NextStep))
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "yett",
		Short: "Lets local agents act with credentials that they never hold",
		Long: "Yett keeps API and SSH credentials, asks you before an agent may use them, does the\n" +
			"HTTP and SSH actions itself and records what was done. The first time: yett up.\n\n" +
			"What gives access takes your passphrase, once for each command. yett approve without an\n" +
			"ID goes through all that waits with one; yett pending --follow shows cards for a quarter\n" +
			"of an hour after one; a passkey in yett console needs none; --passphrase-fd takes it from\n" +
			"a file or a program. What takes access away asks for nothing: lock, revoke, deny, stop.",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("home") && a.home == "" {
				return usageError{errors.New("--home is empty; leave it out for your own home")}
			}
			if c.Flags().Changed("passphrase-fd") && a.passFD < 0 {
				return usageError{errors.New("--passphrase-fd must not be negative")}
			}
			if a.touchID && a.passFD >= 0 {
				return usageError{errors.New("--touch-id and --passphrase-fd exclude each other")}
			}
			if err := c.ValidateFlagGroups(); err != nil {
				return wrongGroup(err)
			}
			return nil
		},
	}
	root.SetVersionTemplate("yett {{.Version}}\n")
	root.SetFlagErrorFunc(wrongFlag)
	flags := root.PersistentFlags()
	flags.StringVar(&a.home, "home", "", "keep everything in `DIR`: for tests; shown on every card")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.IntVar(&a.passFD, "passphrase-fd", -1, "read the passphrase, one line, from file descriptor `N`")
	flags.Lookup("passphrase-fd").DefValue = "0" // printed as no default at all
	root.AddCommand(
		newInit(a), newServe(a), newStop(a), newStatus(a), newUnlock(a), newLock(a),
		newSecret(a), newVault(a), newApply(a), newAccess(a), newConsole(a), newPending(a), newApprove(a), newDeny(a),
		newSessions(a), newRevoke(a), newActivity(a), newOperation(a), newAudit(a), newDoctor(a), newSelftest(a), newReview(a), newAdopt(a), newTry(a), newVersion(a),
		newConnect(a), newService(a), newUninstall(a),
		newPasskey(a), newTouchID(a), newReceipt(a),
		newUp(a), newAdd(a), newSSH(a), newTryAgent(a), newTryStranger(a), newCompletion(a), newMan(a),
	)
	root.SetHelpCommand(newHelp(root))
	inGroups(root)
	withExamples(root)
	usageErrors(root)
	a.knowCommands(root, "")
	a.completeWords(root)
	return root
}
