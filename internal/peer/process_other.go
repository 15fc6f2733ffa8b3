//go:build !linux && !darwin

package peer

import (
	"context"
	"net"
	"os"
	"syscall"

	"github.com/yett-broker/yett/internal/action"
)

// ListenControl refuses.
func ListenControl(_, _ string, _ syscall.RawConn) error { return errMissing }

// Process is one live process. There is none on this system.
type Process struct{}

// Of refuses.
func Of(*net.UnixConn) (*Process, error) { return nil, errMissing }

// Parent refuses.
func Parent() (*Process, error) { return nil, errMissing }

func (p *Process) PID() int                        { return 0 }
func (p *Process) Evidence() action.Process        { return action.Process{} }
func (p *Process) Recheck() error                  { return errMissing }
func (p *Process) Done() <-chan struct{}           { return nil }
func (p *Process) Alive() bool                     { return false }
func (p *Process) Parent() (*Process, error)       { return nil, errMissing }
func (p *Process) SameExecutable(_, _ uint64) bool { return false }
func (p *Process) Hash(context.Context)            {}
func (p *Process) Close() error                    { return nil }

// Reader reads nothing on this system.
type Reader struct{}

// NewReader returns a Reader that refuses.
func NewReader(*net.UnixConn, int) *Reader { return &Reader{} }

func (r *Reader) AcceptDescriptor()        {}
func (r *Reader) Descriptor() *os.File     { return nil }
func (r *Reader) Read([]byte) (int, error) { return 0, errMissing }
