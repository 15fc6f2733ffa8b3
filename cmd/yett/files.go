package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/wire"
)

// readFile reads a regular file of limit bytes at most. Opening a FIFO that nobody
// writes to must not hang.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it is longer than %d bytes", limit)
	}
	if err != nil {
		clear(text)
		return nil, err
	}
	return text, nil
}

// readInput reads a file that the person named.
func readInput(path string, limit int64) ([]byte, error) {
	text, err := readFile(path, limit)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "%s cannot be read: %s.", printable(path), printable(err.Error())).
			Then("Give the path of a file that you may read.")
	}
	return text, nil
}

// writeOutput writes to standard output, or to a file that is not there yet.
// what names the text where that fails.
func (a *app) writeOutput(path, what string, text []byte) error {
	if path == "" {
		_, err := a.stdout.Write(text)
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "The %s was not written: %s.", what, printable(err.Error())).
			Then("Give the name of a new file, in a place that you may write to.")
	}
	return nil
}
