//go:build unix

package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// prepareTerminal drops what was typed before, termios(3) TCSAFLUSH, and turns
// echo off if the answer is hidden. restore puts everything back.
func prepareTerminal(tty *os.File, hidden bool) (restore func(), err error) {
	conn, err := tty.SyscallConn()
	if err != nil {
		return nil, err
	}
	var before *unix.Termios
	set := func(change func(*unix.Termios)) {
		cerr := conn.Control(func(fd uintptr) {
			if before == nil {
				if before, err = unix.IoctlGetTermios(int(fd), getTermios); err != nil {
					return
				}
			}
			t := *before
			change(&t)
			err = unix.IoctlSetTermios(int(fd), setTermiosFlush, &t)
		})
		if err == nil {
			err = cerr
		}
	}
	set(func(t *unix.Termios) {
		if hidden {
			t.Lflag &^= unix.ECHO
			t.Lflag |= unix.ICANON | unix.ISIG
		}
	})
	return func() { set(func(*unix.Termios) {}) }, err
}
