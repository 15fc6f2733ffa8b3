package trial

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

const (
	tryCommand = 30 * time.Second       // one command of the demonstration
	tryEnding  = 6 * time.Second        // a process that was asked to end
	tryPipe    = 500 * time.Millisecond // its output, once it has ended
)

// command is one run of the real command line.
type command struct {
	args  []string
	stdin []byte
	proof bool     // the passphrase goes in on a descriptor
	pass  *os.File // one more descriptor, after the passphrase
	fails bool     // another exit code than 0 is an answer too
}

// yett runs a command and returns what it printed and its exit code. Output,
// arguments and environment are searched for the planted secrets.
func (t *trial) yett(ctx context.Context, c command) (stdout string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryCommand)
	defer cancel()
	args := append(c.args, "--home", t.home)
	var files []*os.File
	if c.proof {
		r, err := onDescriptor(t.passphrase)
		if err != nil {
			return "", 0, err
		}
		defer r.Close()
		files = append(files, r)
		args = append(args, "--passphrase-fd", "3")
	}
	if c.pass != nil {
		files = append(files, c.pass)
	}
	cmd := t.prepare(ctx, t.self, args...)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(c.stdin)), files
	var out, errs record
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return "", 0, fmt.Errorf("starting yett %s: %w", c.args[0], err)
	}
	t.search.lookAtProcesses()
	err = cmd.Wait()
	t.keep("yett "+c.args[0], &out, &errs)
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	code = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if errors.As(err, &exit) && (!c.fails || code < 0) {
		return "", code, fmt.Errorf("yett %s: exit %d: %s", strings.Join(c.args, " "), code, strings.TrimSpace(errs.String()))
	}
	if err != nil && exit == nil {
		return "", code, fmt.Errorf("running yett %s: %w", c.args[0], err)
	}
	return out.String(), code, nil
}

// prepare makes a command with the least environment, in a process group of
// its own: Ctrl-C comes here alone, and here things are ended in order.
func (t *trial) prepare(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = t.dir, t.environment, tryPipe
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.search.look("the arguments of "+program, []byte(strings.Join(cmd.Args, "\n")))
	return cmd
}

// keep searches what a process has printed.
func (t *trial) keep(name string, outputs ...*record) {
	for _, o := range outputs {
		b := o.Bytes()
		t.search.printed += len(b)
		t.search.look("the output of "+name, b)
	}
}

// onDescriptor returns a pipe from which one line can be read.
func onDescriptor(line []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	defer w.Close()
	if _, err := w.Write(append(line[:len(line):len(line)], '\n')); err != nil {
		r.Close()
		return nil, fmt.Errorf("writing to a pipe: %w", err)
	}
	return r, nil
}

// onTerminal runs a command for the person at the terminal, which is left as it
// was found. What the command shows is not on record: on the way through here
// it could come after the question that it belongs to.
func (t *trial) onTerminal(ctx context.Context, args ...string) (int, error) {
	in := t.stdin
	if state, err := term.GetState(int(in.Fd())); err == nil {
		defer term.Restore(int(in.Fd()), state)
	}
	cmd := t.prepare(ctx, t.self, append(args, "--home", t.home)...)
	cmd.SysProcAttr = nil // it reads from the terminal: it stays in the foreground
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, t.out, t.stderr
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting yett %s: %w", args[0], err)
	}
	t.search.lookAtProcesses()
	err := cmd.Wait()
	var exit *exec.ExitError
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("running yett %s: %w", args[0], err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// process is a process that lives beside the demonstration.
type process struct {
	name     string
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	puppet   bool // obeys its standard input and ends with it
	out, err record
	lines    chan string // of a puppet's standard output, of others' standard error
	done     chan struct{}
}

// start starts a process that is ended with the demonstration, at the latest.
func (t *trial) start(name string, puppet bool, files []*os.File, args ...string) (*process, error) {
	p := &process{name: name, puppet: puppet, lines: make(chan string, 16), done: make(chan struct{})}
	p.cmd = t.prepare(context.Background(), t.self, args...)
	p.cmd.ExtraFiles = files
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = io.MultiWriter(&p.out, w), &p.err
	if !puppet {
		p.cmd.Stdout, p.cmd.Stderr = &p.out, io.MultiWriter(&p.err, w)
	}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go p.readLines(r)
	go func() {
		p.cmd.Wait()
		w.Close()
		close(p.done)
	}()
	t.atEnd(func() { t.end(p) })
	t.search.lookAtProcesses()
	return p, nil
}

func (p *process) readLines(r io.Reader) {
	defer close(p.lines)
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		select {
		case p.lines <- line:
		default: // nobody waits for it; it is on record
		}
	}
}

// waitLine waits for a line that has a text in it.
func (p *process) waitLine(ctx context.Context, text string) error {
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return p.broke(io.ErrUnexpectedEOF)
			}
			if strings.Contains(line, text) {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end asks a process to end, then ends it by its id, and searches what it has
// printed.
func (t *trial) end(p *process) {
	ways := []func(){
		func() { p.stdin.Close() },
		func() { p.cmd.Process.Signal(syscall.SIGTERM) },
		func() { p.cmd.Process.Kill() },
	}
	if !p.puppet {
		ways = ways[1:]
	}
	for _, ask := range ways {
		ask()
		select {
		case <-p.done:
			t.keep(p.name, &p.out, &p.err)
			return
		case <-time.After(tryEnding):
		}
	}
}

// ask writes an order to a process and reads its report, a line of JSON each.
func (p *process) ask(ctx context.Context, order, report any) error {
	line, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("encoding an order: %w", err)
	}
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		return p.broke(err)
	}
	select {
	case line, ok := <-p.lines:
		if !ok {
			return p.broke(io.ErrUnexpectedEOF)
		}
		if err := json.Unmarshal([]byte(line), report); err != nil {
			return p.broke(err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *process) broke(err error) error {
	return fmt.Errorf("%s broke off: %w: %s", p.name, err, strings.TrimSpace(p.err.String()))
}
