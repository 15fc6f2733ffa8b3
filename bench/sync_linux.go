package main

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// syncer appends 256 bytes and makes them durable: the least that a durable
// intent costs on this disk.
type syncer struct{ f *os.File }

func newSyncer(dir string) (*syncer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	return &syncer{f}, err
}

func (s *syncer) once() error {
	if _, err := s.f.Write(make([]byte, 256)); err != nil {
		return err
	}
	return unix.Fdatasync(int(s.f.Fd()))
}

func (s *syncer) Close() error { return s.f.Close() }
