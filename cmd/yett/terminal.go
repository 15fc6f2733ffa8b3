package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/yett-broker/yett/internal/wire"
)

// maxAnswer is the longest line that is read from a terminal.
const maxAnswer = 4096

var errInterrupted = errors.New("interrupted")

// askHidden asks on the terminal. Nothing is echoed from before the question
// stands there, and what was typed earlier is dropped.
func askHidden(ctx context.Context, question string) ([]byte, error) {
	line, err := ask(ctx, question, true)
	if err == nil && len(line) == 0 {
		return nil, wire.Errorf(wire.CodeProofRequired, "Nothing was given.")
	}
	return line, err
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
