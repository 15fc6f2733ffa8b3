package sshexec

import (
	"encoding/binary"

	"golang.org/x/crypto/ssh"
)

// A terminal is wide, so that programs which fit their lines to it cut little.
const (
	terminalName    = "xterm"
	terminalColumns = 200
	terminalRows    = 50
)

// terminal is the payload of a pty-req (RFC 4254 section 6.2): what is typed is
// not echoed, and a line ends as the program has written it.
func terminal() []byte {
	var modes []byte
	for _, mode := range []byte{ssh.ECHO, ssh.ONLCR} {
		modes = append(modes, mode)
		modes = binary.BigEndian.AppendUint32(modes, 0)
	}
	return ssh.Marshal(struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}{terminalName, terminalColumns, terminalRows, 0, 0, string(append(modes, 0))})
}

// typed is input as it must be typed at a terminal, where only the end-of-file
// character ends it: once on an empty line, twice behind other text.
func typed(input []byte) []byte {
	const endOfFile = 0x04
	out := append([]byte{}, input...)
	if n := len(out); n > 0 && out[n-1] != '\n' {
		out = append(out, endOfFile)
	}
	return append(out, endOfFile)
}
