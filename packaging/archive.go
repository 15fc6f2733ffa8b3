package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path"
	"strings"
)

// archive writes the tree as a tar.gz, below one directory.
func (r *release) archive(to string, t tree) error {
	top := strings.TrimSuffix(path.Base(to), ".tar.gz")
	var out bytes.Buffer
	z := gzip.NewWriter(&out) // its header carries no time and no name
	w := tar.NewWriter(z)
	header := func(kind byte, name string, mode os.FileMode, size int) error {
		return w.WriteHeader(&tar.Header{Typeflag: kind, Name: path.Join(top, name), Mode: int64(mode), Size: int64(size),
			ModTime: r.time, Uname: "root", Gname: "root"})
	}
	for _, name := range append([]string{"."}, t.directories()...) {
		if err := header(tar.TypeDir, name, 0o755, 0); err != nil {
			return err
		}
	}
	for _, name := range t.names() {
		f := t[name]
		if err := header(tar.TypeReg, name, f.mode(), len(f.content)); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// gzipped compresses one file, the same each time.
func gzipped(content []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(content); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
