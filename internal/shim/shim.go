// Package shim is yett-mcp: an MCP server over standard input and output
// (https://modelcontextprotocol.io) that an agent starts, and that passes what
// the agent asks to the broker. It holds no secret and no policy.
//
// Whom it trusts: the broker, after package endpoint has proven it; of the
// agent nothing but what package peer can tell about who writes on standard
// input. What an agent sends is read once, strictly (inspect, parse,
// wire.DecodeParams), before the MCP SDK or the broker sees it.
//
// Its life is the agent's: the end of standard input, the death of the process
// that started it, a stranger on the pipe, a write that nobody reads and the
// usual signals each end it, and with it the channel and the session. It never
// starts a broker and never sends an action twice.
//
// On standard output stand protocol lines only. The descriptor is moved away
// before anything is read, and descriptor 1 then leads to standard error, so
// that nothing printed by mistake, not even by a crash, gets between them.
package shim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/internal/peer"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// program is what the shim calls itself towards agent and broker.
const program = "yett-mcp"

const (
	// sealWait is how long the end waits for an agent that stops reading in
	// the middle of a line; deadWait is that for an agent that has died.
	sealWait = 200 * time.Millisecond
	deadWait = 20 * time.Millisecond
	// noteWait bounds the last words to standard error.
	noteWait = 40 * time.Millisecond
)

// Run serves one agent and returns the exit code. stdout must be descriptor 1:
// it is taken over for the life of the process.
func Run(args []string, version string, stdin, stdout, stderr *os.File) int {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	home := flags.String("home", "", "use the broker that was started with --home `DIR` (for tests)")
	showVersion := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitDone
		}
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", program, flags.Arg(0))
		return exitUsage
	}
	if *showVersion {
		fmt.Fprintln(stdout, program, version)
		return exitDone
	}
	return serve(version, *home, stdin, stdout, stderr, tools())
}

// serve is the shim's life. What ends it is in the select at its end.
func serve(version string, home string, stdin, stdout, stderr *os.File, catalogue []tool) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE) // a reader that went away is an error to handle, on any descriptor
	protocol, err := takeStdout(stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: taking over standard output: %v\n", program, err)
		return exitFailed
	}
	log := newNotes(stderr)
	cause := live(version, home, stdin, protocol, log, catalogue, signals)
	if cause != nil {
		fmt.Fprintf(log, "%s: %v\n", program, cause)
	}
	log.flush(noteWait)
	if cause != nil {
		return exitFailed
	}
	return exitDone
}

func live(version string, home string, stdin, protocol *os.File, log *notes, catalogue []tool, signals <-chan os.Signal) error {
	parent := os.Getppid()
	parentDied := watchParent(parent, log)
	in, guard, err := guardStdin(stdin, protocol, parent)
	if err != nil {
		return fmt.Errorf("guarding standard input: %w", err)
	}
	link := newLink(home, version, guard)
	work, giveUp := context.WithCancel(context.Background())
	out := newOutput(protocol)
	t := newTransport(in, out)
	t.lastLine = func(cause error) {
		if stranger(cause) {
			t.gate.close(strangerRefusal)
			link.close("another process reached the pipe to yett-mcp")
		}
		giveUp()
	}
	wait := sealWait
	defer func() {
		giveUp()
		link.close("yett-mcp is ending")
		out.seal(wait)
	}()
	server := newServer(version, log)
	for _, tool := range catalogue {
		tool.register(work, server, link)
	}
	if _, err := server.Connect(context.Background(), t, nil); err != nil {
		return fmt.Errorf("starting the MCP server: %w", err)
	}
	select {
	case <-t.ended:
		return t.err
	case <-out.failed:
		return errOutputClosed
	case <-guard.intruded:
		t.lastLine(peer.ErrIntruded)
		t.settle(settleTime)
		return peer.ErrIntruded
	case <-parentDied:
		wait = deadWait
	case <-signals:
	}
	return nil
}

// stranger reports whether somebody else than the agent reached the pipe.
func stranger(err error) bool {
	return errors.Is(err, peer.ErrIntruded) || errors.Is(err, peer.ErrSender)
}

var strangerRefusal = &refusal{code: codeServer, name: "attribution_failed",
	message:  "another process than the agent opened or wrote to the pipe to yett-mcp; the session has ended",
	nextStep: "Find out which process that was, then restart the agent's MCP server."}

func newServer(version string, log io.Writer) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "yett", Title: "Yett", Version: version}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		Logger:       slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	server.AddReceivingMiddleware(survivePanic(log))
	return server
}

// survivePanic turns a panic of a handler into an answer: one broken call must
// not take the agent's other calls with it.
func survivePanic(log io.Writer) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				fmt.Fprintf(log, "%s: panic in %s: %v\n%s", program, method, p, debug.Stack())
				res, err = nil, internalError
				if method == "tools/call" {
					res, err = failure("internal", "yett-mcp failed in a way that it did not expect; whether an action was executed is not known.",
						"Look at yett activity, and report what yett-mcp wrote to standard error."), nil
				}
			}()
			return next(ctx, method, req)
		}
	}
}

// watchParent returns a channel that is closed when the process parent, which
// started this one, is dead.
func watchParent(parent int, log io.Writer) <-chan struct{} {
	died := make(chan struct{})
	go func() {
		if err := awaitDeath(parent); err != nil {
			fmt.Fprintf(log, "%s: the process that started it cannot be watched: %v\n", program, err)
			return
		}
		close(died)
	}()
	return died
}

// stdioGuard is what the shim knows about the stdio hop.
type stdioGuard struct {
	kind     string
	word     string   // what guards it, as the broker is told
	pass     *os.File // the socket that the broker must see, nil on a pipe
	intruded <-chan struct{}
}

func guardStdin(stdin, stdout *os.File, parent int) (lineReader, stdioGuard, error) {
	writer := parent
	if maker, err := peer.OfPair(stdin); err == nil {
		// Behind npx or a shell the agent is not our parent. The broker refuses
		// every session then, and the agent must be able to ask to hear why.
		writer = maker.PID()
		maker.Close()
	}
	s, err := peer.GuardStdin(stdin, stdout, writer)
	if errors.Is(err, peer.ErrUnsupported) {
		return &plainReader{r: stdin}, stdioGuard{kind: "other", word: "none: " + err.Error()}, nil
	}
	if err != nil {
		return nil, stdioGuard{}, err
	}
	g := stdioGuard{kind: s.Kind, intruded: s.Intruded()}
	switch {
	case !s.Guarded:
		g.word = "none: " + s.Why
	case s.Kind == "socket":
		g.word = "sender"
	default:
		g.word = "inotify"
	}
	if s.Kind == "socket" {
		g.pass = stdin
	}
	return s, g, nil
}

// labels are the claims that go with the greeting.
func (g stdioGuard) labels(agent *mcp.Implementation) map[string]string {
	l := map[string]string{"stdio": g.kind, "guard": g.word}
	if agent != nil {
		l["client_name"], l["client_version"] = clip(agent.Name), clip(agent.Version)
	}
	return l
}

// clip bounds what an agent says of itself; the broker escapes it.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
