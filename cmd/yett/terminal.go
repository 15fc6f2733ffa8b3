package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/yett-broker/yett/internal/wire"
)

// maxAnswer is the longest line that is read from a terminal.
const maxAnswer = 4096

var errInterrupted = errors.New("interrupted")

// askedAgain is how often a hidden question is put before an empty answer is
// taken for one.
const askedAgain = 3

// askHidden asks on the terminal. Nothing is echoed from before the question
// stands there, and what was typed earlier is dropped. Where nothing can be
// seen an empty line is often a slip, so it is asked for again.
func askHidden(ctx context.Context, question string) ([]byte, error) {
	prefix := ""
	for range askedAgain {
		line, err := ask(ctx, prefix+question, true)
		if err != nil || len(line) > 0 {
			return line, err
		}
		prefix = "That was empty. "
	}
	return nil, wire.Errorf(wire.CodeProofInvalid, "The answer was empty, %d times.", askedAgain).
		Then("Run it again and type it before Enter; nothing is shown while you type.")
}

// askYes asks for a whole word. A y alone was meant as one, and is asked for
// once more: no key by itself decides anything.
func askYes(ctx context.Context, question string) (bool, error) {
	line, err := ask(ctx, question, false)
	if err == nil && strings.EqualFold(string(bytes.TrimSpace(line)), "y") {
		line, err = ask(ctx, "The whole word, please. Type yes: ", false)
	}
	return err == nil && string(bytes.TrimSpace(line)) == "yes", err
}

// ask asks on the terminal that the process belongs to, wherever its standard
// streams go. It ends when ctx does and leaves the terminal as it was.
func ask(ctx context.Context, question string, hidden bool) ([]byte, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, wire.NewError(wire.CodeProofRequired)
	}
	defer tty.Close()
	restore, err := prepareTerminal(tty, hidden)
	if err != nil {
		return nil, fmt.Errorf("setting up the terminal: %w", err)
	}
	defer restore()
	fmt.Fprint(tty, question)
	if hidden {
		defer fmt.Fprintln(tty)
	}
	stop := context.AfterFunc(ctx, func() { tty.SetReadDeadline(past) })
	defer stop()
	line, err := readAnswer(tty)
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if err != nil {
		return nil, fmt.Errorf("reading from the terminal: %w", err)
	}
	return line, nil
}

// readAnswer reads up to the end of a line; a terminal gives whole lines.
func readAnswer(tty *os.File) ([]byte, error) {
	line := make([]byte, 0, maxAnswer)
	for len(line) < maxAnswer {
		n, err := tty.Read(line[len(line):cap(line)])
		line = line[:len(line)+n]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			return bytes.TrimSuffix(line[:i], []byte("\r")), nil
		}
		if err == io.EOF || n == 0 && err == nil {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the line is too long")
}
