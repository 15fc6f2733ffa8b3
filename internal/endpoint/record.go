package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// recordVersion is the version of both records.
const recordVersion = 1

// maxRecord bounds what is read: two paths and some numbers.
const maxRecord = 16 << 10

// holder is what a broker says of itself while it holds the endpoint.
type holder struct {
	Version    int    `json:"version"`
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"` // with pid and boot: this process and no later one
	BootID     string `json:"boot_id"`
	Executable string `json:"executable"`
	Socket     string `json:"socket"`
}

func (h holder) public() Holder { return Holder{PID: h.PID, Executable: h.Executable} }

// state is the holder and the node that it put at the path.
type state struct {
	holder
	identity
}

// self is the record of the running process.
func self(socket string) (holder, error) {
	h := holder{Version: recordVersion, PID: os.Getpid(), Socket: socket}
	var err error
	if h.StartTicks, h.BootID, err = lifetime(h.PID); err != nil {
		return holder{}, fmt.Errorf("reading the start of the running process: %w", err)
	}
	if h.Executable, err = os.Executable(); err != nil {
		return holder{}, fmt.Errorf("finding the running program: %w", err)
	}
	return h, nil
}

// alive reports whether the process that wrote h still runs. What cannot be
// read is not alive: the lock and the socket are asked as well.
func (h holder) alive() bool {
	if h.PID <= 0 {
		return false
	}
	ticks, boot, err := lifetime(h.PID)
	return err == nil && ticks == h.StartTicks && boot == h.BootID
}

// parseState reads a state or, with a zero identity, a holder.
func parseState(b []byte) (state, error) {
	var s state
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return state{}, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return state{}, errors.New("data after the record")
	}
	if s.Version != recordVersion {
		return state{}, fmt.Errorf("record version %d is not %d", s.Version, recordVersion)
	}
	if s.PID <= 0 {
		return state{}, fmt.Errorf("record names process %d", s.PID)
	}
	return s, nil
}

// readHolder reads a lock file. An empty, torn or foreign record names nobody.
func readHolder(f *os.File) holder {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxRecord))
	if err != nil {
		return holder{}
	}
	s, err := parseState(b)
	if err != nil || !s.alive() {
		return holder{}
	}
	return s.holder
}

// writeHolder writes a lock file. A reader that meets it half written learns
// of nobody, which is what it shows.
func writeHolder(f *os.File, h holder) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(b, '\n'), 0)
	return err
}

// readState reads what the last broker recorded. A state that is missing or
// cannot be parsed proves nothing and is the zero state; one that is not our
// regular file is an error.
func (d *directory) readState() (state, error) {
	f, err := d.openOwn(stateName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return state{}, err
	}
	s, err := parseState(b)
	if err != nil {
		return state{}, nil
	}
	return s, nil
}

// writeState replaces the state at once. It is not synced: after a power
// failure no holder is alive, and the state is not needed.
func (d *directory) writeState(s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp := temporary('s')
	f, err := d.createOwn(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = unix.Renameat(d.fd, tmp, d.fd, stateName)
	}
	if err != nil {
		unix.Unlinkat(d.fd, tmp, 0)
		return fmt.Errorf("writing %s: %w", d.join(stateName), err)
	}
	return nil
}
