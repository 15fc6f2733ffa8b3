//go:build !linux

package peer

import (
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/yett-broker/yett/internal/action"
)

// errMissing names what would have to be here. Until it is, everything refuses.
var errMissing = fmt.Errorf("%w: %s", ErrUnsupported, missing())

func missing() string {
	if runtime.GOOS == "darwin" {
		return "what reads audit tokens and code signatures on macOS was compiled and never run; run yett selftest there"
	}
	return "nothing like SO_PEERPIDFD is known for " + runtime.GOOS
}

// Floor reports why this system cannot give the evidence that Yett needs.
func Floor() error { return errMissing }

// BootID refuses.
func BootID() (string, error) { return "", errMissing }

// OfPair refuses.
func OfPair(*os.File) (*Process, error) { return nil, errMissing }

// Kinship refuses.
func Kinship(_, _ *Process) (action.Kinship, error) { return action.Kinship{}, errMissing }

// Stdio is standard input and the guard over it.
type Stdio struct {
	Kind    string
	Guarded bool
	Why     string
}

// GuardStdin refuses.
func GuardStdin(_, _ *os.File, _ int) (*Stdio, error) { return nil, errMissing }

func (s *Stdio) Reader() io.Reader                  { return refusing{} }
func (s *Stdio) Trusted() bool                      { return false }
func (s *Stdio) ReadLine(int) ([]byte, bool, error) { return nil, false, errMissing }
func (s *Stdio) Intruded() <-chan struct{}          { return nil }
func (s *Stdio) Close() error                       { return nil }

type refusing struct{}

func (refusing) Read([]byte) (int, error) { return 0, errMissing }
