package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/durable"
)

const (
	recordVersion = 1
	lockName      = "installed.lock"
)

// record is what was put where. The package comment has its form.
type record struct {
	Version int               `json:"version"`
	Files   map[string]*wrote `json:"files"`
	Units   map[string]string `json:"units"`
}

// wrote is what was put into one configuration.
type wrote struct {
	Client      string     `json:"client"`
	Created     bool       `json:"created,omitempty"`
	Directories []string   `json:"directories,omitempty"`
	Added       []addition `json:"added"`
}

// addition is one value that was put into a configuration.
type addition struct {
	At      []string `json:"at"`
	Element string   `json:"element,omitempty"`
	Made    int      `json:"made,omitempty"`
	Was     string   `json:"was,omitempty"`
}

func (a addition) same(b addition) bool {
	return a.Element == b.Element && fmt.Sprint(a.At) == fmt.Sprint(b.At)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (p Place) recordPath() string { return p.path(".local/state/yett/installed.json") }

// RecordError is a record that cannot be read; nothing is guessed instead.
type RecordError struct {
	Path  string
	Cause error
}

func (e *RecordError) Error() string { return fmt.Sprintf("%s cannot be read: %v", e.Path, e.Cause) }
func (e *RecordError) Unwrap() error { return e.Cause }

func (p Place) readRecord() (*record, error) {
	r := &record{Version: recordVersion, Files: map[string]*wrote{}, Units: map[string]string{}}
	text, err := durable.ReadFile(p.recordPath(), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err == nil && r.Version != recordVersion {
		err = fmt.Errorf("it has version %d", r.Version)
	}
	if err != nil {
		return nil, &RecordError{p.recordPath(), err}
	}
	return r, nil
}

// change reads the record, lets edit change it, and writes it, while no other
// process does.
func (p Place) change(edit func(*record)) error {
	dir := filepath.Dir(p.recordPath())
	if err := p.ownDirectory(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.New("another yett is changing configurations now")
	}
	r, err := p.readRecord()
	if err != nil {
		return err
	}
	edit(r)
	if len(r.Files)+len(r.Units) == 0 {
		return p.removeRecord()
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(p.recordPath(), append(text, '\n'), false)
}

// removeRecord leaves nothing behind where nothing is installed any more.
func (p Place) removeRecord() error {
	dir := filepath.Dir(p.recordPath())
	for _, path := range []string{p.recordPath(), filepath.Join(dir, lockName)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	removeEmpty([]string{dir})
	return nil
}
