package macos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// ProcessInfoSize is sizeof(struct proc_bsdinfo), which proc_pidinfo(3) with
// PROC_PIDTBSDINFO returns on success. Anything else is no answer.
const ProcessInfoSize = 136

// Flags of ProcessInfo that matter here (sys/proc_info.h).
const (
	processTraced  = 0x2
	processExiting = 0x4
)

// ProcessInfo is what the kernel keeps of a process: struct proc_bsdinfo.
type ProcessInfo struct {
	Flags      uint32
	PID, PPID  int
	UID, GID   int
	RealUID    int
	Name       string // at most 31 bytes, chosen by the program; for display
	TTY        uint32 // device of the terminal; NoTTY for none
	Start      time.Time
	ParentLost bool // the parent is launchd: nobody's, or reparented
}

// NoTTY is the device of a process without a terminal.
const NoTTY = ^uint32(0)

// ParseProcessInfo reads a proc_bsdinfo.
func ParseProcessInfo(b []byte) (ProcessInfo, error) {
	if len(b) != ProcessInfoSize {
		return ProcessInfo{}, fmt.Errorf("proc_bsdinfo has %d bytes, want %d", len(b), ProcessInfoSize)
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	p := ProcessInfo{
		Flags: u32(0), PID: int(u32(12)), PPID: int(u32(16)), UID: int(u32(20)), GID: int(u32(24)), RealUID: int(u32(28)),
		Name: text(b[64:96]), TTY: u32(108),
	}
	if p.Name == "" {
		p.Name = text(b[48:64])
	}
	seconds, micros := binary.LittleEndian.Uint64(b[120:]), binary.LittleEndian.Uint64(b[128:])
	if micros >= 1e6 || seconds > 1<<40 {
		return ProcessInfo{}, fmt.Errorf("proc_bsdinfo names a start of %d s and %d µs", seconds, micros)
	}
	p.Start = time.Unix(int64(seconds), int64(micros)*1000).UTC()
	p.ParentLost = p.PPID <= 1
	return p, nil
}

// Traced reports whether a debugger holds the process.
func (p ProcessInfo) Traced() bool { return p.Flags&processTraced != 0 }

// Exiting reports whether the process is about to be gone.
func (p ProcessInfo) Exiting() bool { return p.Flags&processExiting != 0 }

// StartTicks is the start in microseconds since 1970: with the boot it tells
// two processes of one number apart.
func (p ProcessInfo) StartTicks() uint64 { return uint64(p.Start.UnixMicro()) }

// text is a C string in an array that need not end it.
func text(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}
