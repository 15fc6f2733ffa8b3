package main

import "golang.org/x/sys/unix"

func flush(fd, queue int) { unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, queue) }
