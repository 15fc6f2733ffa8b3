package main

import "golang.org/x/sys/unix"

func flush(fd, queue int) { unix.IoctlSetInt(fd, unix.TCFLSH, queue) }
