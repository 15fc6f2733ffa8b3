package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// archive writes an initramfs: files in cpio's "newc" form, as the kernel reads
// them. A header is eleven fields of eight hexadecimal digits behind a magic.
type archive struct {
	w     *bufio.Writer
	inode int
	err   error
}

func (a *archive) entry(name string, mode uint32, device [2]int, size int64, content io.Reader) {
	if a.err != nil {
		return
	}
	a.inode++
	n, err := fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, size, 0, 0, device[0], device[1], len(name)+1, 0, name)
	a.err = err
	a.pad(int64(n))
	if content != nil && a.err == nil {
		var copied int64
		copied, a.err = io.Copy(a.w, content)
		if a.err == nil && copied != size {
			a.err = fmt.Errorf("%s changed its size", name)
		}
		a.pad(size)
	}
}

// pad fills up to a multiple of four.
func (a *archive) pad(n int64) {
	for ; n%4 != 0 && a.err == nil; n++ {
		a.err = a.w.WriteByte(0)
	}
}

const (
	modeFile = 0o100000
	modeDir  = 0o040000
	modeNode = 0o020000
	modeLink = 0o120000
)

var none [2]int // no device

// file adds a file of the host as an executable of root.
func (a *archive) file(name, from string) {
	f, err := os.Open(from)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	a.entry(name, modeFile|0o755, none, info.Size(), f)
}

func (a *archive) text(name, content string) {
	a.entry(name, modeFile|0o644, none, int64(len(content)), strings.NewReader(content))
}

// pack makes the initramfs of one machine from what build left in dir.
func pack(to, dir, busybox string, jobs []job) (err error) {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := &archive{w: bufio.NewWriter(z)}
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys", "tmp", "run", "tests"} {
		a.entry(d, modeDir|0o755, none, 0, nil)
	}
	a.entry("dev/console", modeNode|0o600, [2]int{5, 1}, 0, nil) // what init says before there is a /dev
	list, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	a.text("jobs.json", string(list))
	a.text("etc/passwd", fmt.Sprintf("root:x:0:0::/root:/bin/sh\nada:x:%d:%d::/home/ada:/bin/sh\n", account, account))
	a.text("etc/hosts", "127.0.0.1 localhost\n")
	for _, p := range built {
		a.file(path.Join(p.in, p.name), filepath.Join(dir, p.name))
	}
	a.file("bin/busybox", busybox)
	for _, name := range []string{"sh", "true", "false", "sleep", "cat", "cp", "chmod", "env", "mount", "umount"} {
		a.entry("bin/"+name, modeLink|0o777, none, int64(len("busybox")), strings.NewReader("busybox"))
	}
	a.file("init", filepath.Join(dir, "kernels"))
	a.entry("TRAILER!!!", 0, none, 0, nil)
	return errors.Join(a.err, a.w.Flush(), z.Close())
}
