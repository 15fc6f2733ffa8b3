package sshexec

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/bulk"
)

const (
	extensionRename = "posix-rename@openssh.com" // replaces a file in one step
	extensionSync   = "fsync@openssh.com"
	requestsAtOnce  = 64
)

// Transfer is the copy of one file: from Source to the host, or from the host
// to Sink.
type Transfer struct {
	Remote    string // absolute and canonical; no symbolic link is followed, as far as the host tells
	Source    io.Reader
	Sink      io.Writer
	Overwrite bool          // to the host: a file that is there may be replaced
	MaxSize   int64         // a longer file is not copied
	Timeout   time.Duration // 0: the target's
}

// Copied tells what was copied.
type Copied struct {
	Size     int64
	SHA256   [sha256.Size]byte
	Replaced bool   // a file was there
	HostKey  string // what the host proved itself by
}

// Copy copies one file over SFTP. To the host it comes under a temporary name
// first and takes its place in one step, before which Begin is asked; until
// then nothing at its place has changed. From the host nothing is changed
// there, and Begin is not asked: what Sink got takes effect when the caller
// says so. Every error is an *Error; MaybeSent tells that something may have
// changed on the host: with a *PartError a part only, otherwise the file may be
// in its place.
func (e *Executor) Copy(ctx context.Context, t Target, s ssh.Signer, c Transfer) (*Copied, error) {
	t, err := t.complete()
	switch {
	case err != nil:
	case (c.Source == nil) == (c.Sink == nil):
		err = errors.New("a copy goes one way")
	case c.MaxSize <= 0:
		err = errors.New("a copy has a largest size")
	}
	if err != nil {
		return nil, &Error{Code: CodeInternal, Cause: err}
	}
	if c.Timeout == 0 {
		c.Timeout = t.RunTimeout
	}
	l, ch, reqs, err := e.session(ctx, t, s)
	if err != nil {
		return nil, err
	}
	done, clean, err := l.copy(ctx, ch, reqs, t, c)
	e.kept.give(l, clean)
	if err != nil {
		return nil, err
	}
	done.HostKey = l.hostKey
	return done, nil
}

// copy has the time of one transfer. Its end closes the connection, and with it
// ends every goroutine below.
func (k *kept) copy(ctx context.Context, ch ssh.Channel, reqs <-chan *ssh.Request, t Target, c Transfer) (done *Copied, clean bool, err error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		if !clean {
			k.Close()
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout,
		fmt.Errorf("the file was not copied within %s: %w", c.Timeout, context.DeadlineExceeded))
	defer cancel()
	ctx, release := k.hold(ctx, t.Quiet)
	defer release()
	closed := make(chan struct{})
	wg.Go(func() {
		defer close(closed)
		ssh.DiscardRequests(reqs)
	})
	wg.Go(func() { io.Copy(io.Discard, ch.Stderr()) })

	f := &files{pipe: &pipe{Channel: ch}, transfer: c, session: t.Session, begin: t.Begin, sent: t.Sent}
	if err := f.open(); err != nil {
		return nil, false, f.failed(ctx, err)
	}
	if c.Source != nil {
		done, err = f.up()
	} else {
		done, err = f.down()
	}
	if err != nil {
		return nil, f.Close() == nil && isClosed(ctx, closed), f.failed(ctx, err)
	}
	return done, f.Close() == nil && isClosed(ctx, closed), nil
}

// files is the host's file system during one transfer.
type files struct {
	*sftp.Client
	pipe     *pipe
	transfer Transfer
	session  string
	begin    func() error
	sent     func()
	placing  bool   // the file may be in its place
	part     string // the temporary name, from when it may have been there
	left     bool   // it may still be there
}

// pipe is a channel to an SFTP server. Closing it ends the server's input, so
// that it goes in an orderly way.
type pipe struct {
	ssh.Channel
	mu   sync.Mutex
	then func() // what follows the next write, once
}

func (p *pipe) Close() error { return p.CloseWrite() }

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.Channel.Write(b)
	p.mu.Lock()
	then := p.then
	p.then = nil
	p.mu.Unlock()
	if then != nil && err == nil {
		then()
	}
	return n, err
}

func (p *pipe) after(then func()) {
	p.mu.Lock()
	p.then = then
	p.mu.Unlock()
}

func (f *files) open() error {
	switch ok, err := f.pipe.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"sftp"})); {
	case err != nil:
		return fmt.Errorf("asking for SFTP: %w", err)
	case !ok:
		return errors.New("the host offers no SFTP")
	}
	c, err := sftp.NewClientPipe(f.pipe, f.pipe, sftp.UseFstat(true), sftp.UseConcurrentWrites(true),
		sftp.MaxConcurrentRequestsPerFile(requestsAtOnce))
	if err != nil {
		return fmt.Errorf("beginning SFTP: %w", err)
	}
	f.Client = c
	return nil
}

// failed tells why there is no complete copy, and what came of a part.
func (f *files) failed(ctx context.Context, err error) *Error {
	err = legible(whyEnded(ctx, err))
	if f.part != "" && !f.placing {
		err = &PartError{Name: f.part, Left: f.left, Cause: err}
	} else if f.left {
		err = fmt.Errorf("%w; a part of the file may be left on the host as %s", err, f.part)
	}
	return &Error{Code: CodeUpstream, MaybeSent: f.part != "", Cause: err}
}

// direct refuses a path that leads through a symbolic link.
func (f *files) direct(p string) error {
	real, err := f.RealPath(p)
	switch {
	case err != nil:
		return fmt.Errorf("looking at %s: %w", p, err)
	case real != p:
		return fmt.Errorf("%s leads to %s on the host, through a symbolic link: name the real path", p, real)
	}
	return nil
}

// regular returns what lies at a path, nil where nothing does.
func (f *files) regular(p string) (fs.FileInfo, error) {
	info, err := f.Lstat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking at %s: %w", p, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file on the host", p)
	}
	return info, nil
}

func (f *files) down() (*Copied, error) {
	remote := f.transfer.Remote
	if err := f.direct(remote); err != nil {
		return nil, err
	}
	// A FIFO would block at being opened, so what it is comes first.
	info, err := f.regular(remote)
	switch {
	case err != nil:
		return nil, err
	case info == nil:
		return nil, fmt.Errorf("there is no file %s on the host", remote)
	case info.Size() > f.transfer.MaxSize:
		return nil, &TooLongError{f.transfer.MaxSize}
	}
	from, err := f.OpenFile(remote, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", remote, err)
	}
	defer from.Close()
	if err := f.opened(from); err != nil {
		return nil, err
	}
	to := &counted{to: f.transfer.Sink, hash: sha256.New(), limit: f.transfer.MaxSize, bulk: bulk.Stream{Session: f.session}}
	if _, err := from.WriteTo(to); err != nil {
		return nil, fmt.Errorf("reading %s: %w", remote, err)
	}
	if err := f.direct(remote); err != nil { // what came is given to nobody then
		return nil, fmt.Errorf("while it was read: %w", err)
	}
	return to.copied(), nil
}

// opened refuses a file that is not the one at its path by now. SFTP opens by
// name alone and knows no inode, so this goes by what it tells of both; a file
// that is written meanwhile is looked at again.
func (f *files) opened(file *sftp.File) error {
	const looks = 5
	remote := f.transfer.Remote
	for range looks {
		got, err := file.Stat()
		if err != nil {
			return fmt.Errorf("looking at the opened %s: %w", remote, err)
		}
		if err := f.direct(remote); err != nil {
			return err
		}
		there, err := f.regular(remote)
		switch {
		case err != nil:
			return err
		case there != nil && alike(got, there):
			return nil
		}
	}
	return fmt.Errorf("another file was opened than lies at %s on the host", remote)
}

// alike reports whether two answers can be about one file at one time.
func alike(a, b fs.FileInfo) bool {
	if a.Mode() != b.Mode() || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
		return false
	}
	x, ok := a.Sys().(*sftp.FileStat)
	y, too := b.Sys().(*sftp.FileStat)
	return ok && too && x.UID == y.UID && x.GID == y.GID
}

func (f *files) up() (*Copied, error) {
	dir, remote := path.Dir(f.transfer.Remote), f.transfer.Remote
	if err := f.direct(dir); err != nil {
		return nil, err
	}
	before, err := f.regular(remote)
	if err != nil {
		return nil, err
	}
	_, replaces := f.HasExtension(extensionRename)
	switch {
	case before != nil && !f.transfer.Overwrite:
		return nil, fmt.Errorf("%s is there already, and is not to be overwritten", remote)
	case f.transfer.Overwrite && !replaces:
		return nil, errors.New("the host cannot replace a file in one step")
	}
	done, err := f.write(dir, before)
	if err == nil {
		err = f.place(dir, remote)
	}
	if err != nil {
		f.discard(dir)
		return nil, err
	}
	done.Replaced = before != nil
	return done, nil
}

// write puts the whole file on the host under a temporary name.
func (f *files) write(dir string, before fs.FileInfo) (*Copied, error) {
	name := path.Join(dir, ".yett-"+rand.Text())
	f.part, f.left = name, true
	to, err := f.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		if saidNo(err) {
			f.part, f.left = "", false
		}
		return nil, fmt.Errorf("making a file in %s: %w", dir, err)
	}
	defer to.Close()
	seen := &counted{to: io.Discard, hash: sha256.New(), limit: f.transfer.MaxSize}
	if _, err := to.ReadFromWithConcurrency(io.TeeReader(f.transfer.Source, seen), requestsAtOnce); err != nil {
		return nil, fmt.Errorf("writing a part: %w", err)
	}
	if before != nil { // what replaces a file is as open to others as it was
		if err := to.Chmod(before.Mode().Perm()); err != nil {
			return nil, fmt.Errorf("setting the mode: %w", err)
		}
	}
	if _, ok := f.HasExtension(extensionSync); ok {
		if err := to.Sync(); err != nil {
			return nil, fmt.Errorf("syncing: %w", err)
		}
	}
	if err := to.Close(); err != nil {
		return nil, fmt.Errorf("closing the part: %w", err)
	}
	switch info, err := f.regular(name); {
	case err != nil:
		return nil, err
	case info == nil || info.Size() != seen.size:
		return nil, errors.New("the host has another size than was sent")
	}
	return seen.copied(), nil
}

// place gives the part its name. From begin's answer on it may have it, until
// the host says that it has not. The directory must be the real one before and
// after: the names in between are all that SFTP knows.
func (f *files) place(dir, remote string) error {
	if err := f.direct(dir); err != nil {
		return fmt.Errorf("before the file got its place: %w", err)
	}
	if err := f.begin(); err != nil {
		return err
	}
	f.placing = true
	f.pipe.after(f.sent)
	rename := f.Rename // of version 3: fails where a file is
	if f.transfer.Overwrite {
		rename = f.PosixRename
	}
	if err := rename(f.part, remote); err != nil {
		f.placing = !saidNo(err)
		return fmt.Errorf("putting the file in its place: %w", err)
	}
	f.left = false
	if err := f.direct(dir); err != nil {
		return fmt.Errorf("the file may have got its place elsewhere: %w", err)
	}
	return nil
}

// saidNo reports whether an error is the host's own word that it did not do
// what it was asked for.
func saidNo(err error) bool {
	var status *sftp.StatusError
	return errors.As(err, &status) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)
}

// discard removes the part, if the host is still there to be asked. It does
// nothing where the part may be in its place, or where its directory is another.
func (f *files) discard(dir string) {
	if f.left && !f.placing && f.direct(dir) == nil && f.Remove(f.part) == nil {
		f.left = false
	}
}

// PartError is a copy that left its place on the host untouched, after a file
// of a temporary name was made beside it.
type PartError struct {
	Name  string // on the host
	Left  bool   // it may still be there
	Cause error
}

func (e *PartError) Error() string {
	if e.Left {
		return fmt.Sprintf("%v; a part of the file may be left on the host as %s", e.Cause, e.Name)
	}
	return fmt.Sprintf("%v; the part of it that was written to the host was removed there", e.Cause)
}

func (e *PartError) Unwrap() error { return e.Cause }

// TooLongError is a file with more than the bytes that may be copied.
type TooLongError struct{ Limit int64 }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the file has more than %d bytes, the most that may be copied", e.Limit)
}

// counted hashes what passes and ends where there is too much of it.
type counted struct {
	to    io.Writer
	hash  hash.Hash
	size  int64
	limit int64
	bulk  bulk.Stream
}

func (c *counted) Write(b []byte) (int, error) {
	if c.size+int64(len(b)) > c.limit {
		return 0, &TooLongError{c.limit}
	}
	c.bulk.Came(len(b))
	n, err := c.to.Write(b)
	c.hash.Write(b[:n])
	c.size += int64(n)
	return n, err
}

func (c *counted) copied() *Copied {
	done := &Copied{Size: c.size}
	c.hash.Sum(done.SHA256[:0])
	return done
}
