//go:build !linux

package peer

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/yett-broker/yett/internal/action"
)

// errMissing names what would have to be here. Until it is, everything refuses.
var errMissing = fmt.Errorf("%w: %s", ErrUnsupported, missing())

func missing() string {
	if runtime.GOOS == "darwin" {
		return "audit tokens (LOCAL_PEERTOKEN) and code signatures are not read on macOS yet"
	}
	return "nothing like SO_PEERPIDFD is known for " + runtime.GOOS
}

// Floor reports why this system cannot give the evidence that Yett needs.
func Floor() error { return errMissing }

// BootID refuses.
func BootID() (string, error) { return "", errMissing }

// ListenControl refuses.
func ListenControl(_, _ string, _ syscall.RawConn) error { return errMissing }

// Process is one live process. There is none on this system.
type Process struct{}

// Of refuses.
func Of(*net.UnixConn) (*Process, error) { return nil, errMissing }

// OfPair refuses.
func OfPair(*os.File) (*Process, error) { return nil, errMissing }

// Parent refuses.
func Parent() (*Process, error) { return nil, errMissing }

// Kinship refuses.
func Kinship(_, _ *Process) (action.Kinship, error) { return action.Kinship{}, errMissing }

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

// Stdio is standard input and the guard over it.
type Stdio struct {
	Kind    string
	Guarded bool
	Why     string
}

// GuardStdin refuses.
func GuardStdin(_, _ *os.File, _ int) (*Stdio, error) { return nil, errMissing }

func (s *Stdio) Reader() io.Reader                  { return &Reader{} }
func (s *Stdio) Trusted() bool                      { return false }
func (s *Stdio) ReadLine(int) ([]byte, bool, error) { return nil, false, errMissing }
func (s *Stdio) Intruded() <-chan struct{}          { return nil }
func (s *Stdio) Close() error                       { return nil }
