package trial

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yett-broker/yett/internal/demo"
)

// search looks for the planted secrets wherever they must not be, and keeps
// count of where it looked.
type search struct {
	canaries demo.Canaries

	mu        sync.Mutex
	leaks     []string
	printed   int // bytes that processes printed
	files     map[string]bool
	processes map[demo.Process]bool
	shut      map[int]bool // the kernel does not show their environment
}

func newSearch() *search {
	return &search{files: map[string]bool{}, processes: map[demo.Process]bool{}, shut: map[int]bool{}}
}

// look searches b, which was found at a place.
func (s *search) look(place string, b []byte) {
	for _, name := range s.canaries.In(b) {
		leak := name + " in " + place
		s.mu.Lock()
		if !slices.Contains(s.leaks, leak) {
			s.leaks = append(s.leaks, leak)
		}
		s.mu.Unlock()
	}
}

// lookAtFiles searches every file below dir.
func (s *search) lookAtFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // a temporary file, gone meanwhile
		}
		if err != nil {
			return fmt.Errorf("searching the files: %w", err)
		}
		name := strings.TrimPrefix(path, dir+"/")
		s.look("the file "+name, b)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.files[name] = true
		return nil
	})
}

// lookAtProcesses searches the command line and the environment of this
// process and of every one below it.
func (s *search) lookAtProcesses() {
	s.lookAtProcess(os.Getpid())
	for _, p := range demo.Descendants(os.Getpid()) {
		s.mu.Lock()
		s.processes[p] = true
		s.mu.Unlock()
		s.lookAtProcess(p.PID)
	}
}

func (s *search) lookAtProcess(pid int) {
	for _, name := range []string{"cmdline", "environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if os.IsPermission(err) {
			s.mu.Lock()
			s.shut[pid] = true
			s.mu.Unlock()
		}
		s.look(fmt.Sprintf("the %s of process %d", name, pid), b)
	}
}

// stillRunning waits a moment for every process that was seen to end, and
// returns those that have not.
func (s *search) stillRunning() []demo.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []demo.Process
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left = left[:0]
		for p := range s.processes {
			if p.Running() {
				left = append(left, p)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// record keeps what a process prints, for several goroutines.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

// Bytes returns a copy of what was written so far.
func (r *record) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.b.Bytes())
}

func (r *record) String() string { return string(r.Bytes()) }
