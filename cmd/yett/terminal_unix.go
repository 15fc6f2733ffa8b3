//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushInput drops what was typed before a question was shown, tcflush(3).
func flushInput(tty *os.File) { flush(int(tty.Fd()), unix.TCIFLUSH) }
