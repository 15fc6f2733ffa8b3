package peer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hashDeadline = 6 * time.Second // agents of 400 MB exist, and busy machines; yett-mcp waits 8 s for its session
	hashSizeCap  = 1 << 30
	hashChunk    = 1 << 20
	cacheEntries = 256
)

// hashSlots bounds the hashes in flight: a file system that never answers
// costs as many threads and no more.
var hashSlots = make(chan struct{}, 2)

// Hash fills in the SHA-256 of the running image, or why there is none. It
// reads the image that the kernel holds, whatever lies at its path by now, and
// works once; later calls wait for the first.
func (p *Process) Hash(ctx context.Context) {
	p.hashing.Lock()
	defer p.hashing.Unlock()
	if p.hashed {
		return
	}
	p.hashed = true

	digest, err := p.hashInTime(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.evidence.Filesystem.NotHashed = err.Error()
		return
	}
	p.evidence.Filesystem.SHA256 = digest
}

func (p *Process) hashInTime(ctx context.Context) (string, error) {
	k := &p.evidence.Kernel
	if k.ExeState == exeHidden {
		return "", errors.New("program hidden")
	}
	img, err := p.openImage()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, hashDeadline)
	defer cancel()
	select {
	case hashSlots <- struct{}{}:
	case <-ctx.Done():
		img.close()
		return "", errors.New("no time left to begin")
	}
	type result struct {
		digest string
		err    error
	}
	results := make(chan result, 1)
	go func() {
		defer func() { <-hashSlots }()
		defer img.close()
		digest, err := img.hash(ctx, k.ExeDevice, k.ExeInode)
		results <- result{digest, err}
	}()
	select {
	case r := <-results:
		if r.err != nil {
			return "", r.err
		}
		// While this process runs it, nobody can have written to the file.
		if err := p.Recheck(); err != nil {
			return "", err
		}
		return r.digest, nil
	case <-ctx.Done():
		return "", errors.New("not finished in time")
	}
}

// heldImage is a running image that nobody has been asked to read yet.
type heldImage struct {
	path   int    // O_PATH: opening for reading already asks a FUSE server
	fsType string // as in mountinfo
}

// openImage takes hold of what /proc/PID/exe holds, and waits for nobody.
func (p *Process) openImage() (img heldImage, err error) {
	cerr := p.raw.Control(func(uintptr) {
		img.path, err = unix.Openat(int(p.dir), "exe", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			err = fmt.Errorf("opening the image: %w", err)
			return
		}
		if p.evidence.Kernel.ExeState == exeMemory {
			img.fsType = "tmpfs" // the kernel's own, mounted nowhere
			return
		}
		if img.fsType, err = p.dir.fsTypeOf(img.path); err != nil {
			img.close()
		}
	})
	return img, errors.Join(cerr, err)
}

func (i heldImage) close() { unix.Close(i.path) }

// hash hashes the image if it is the given file.
func (i heldImage) hash(ctx context.Context, dev, ino uint64) (string, error) {
	if othersDecide(i.fsType) {
		return "", fmt.Errorf("on a file system that others decide (%s)", i.fsType)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(i.path, &fs); err != nil {
		return "", fmt.Errorf("asking for the file system: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", i.path))
	if err != nil {
		return "", fmt.Errorf("opening the image: %w", err)
	}
	defer f.Close()

	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", fmt.Errorf("asking for the image: %w", err)
	}
	switch {
	case st.Dev != dev || st.Ino != ino:
		return "", errors.New("another program by now")
	case st.Size > hashSizeCap:
		return "", fmt.Errorf("larger than %d MiB", hashSizeCap>>20)
	}
	key, keep := cacheKey(&st, fs.Flags)
	if keep {
		if digest, ok := digests.get(key); ok {
			return digest, nil
		}
	}
	digest, err := hashFile(ctx, f, st.Size)
	if err != nil {
		return "", err
	}
	if keep {
		digests.put(key, digest)
	}
	return digest, nil
}

func hashFile(ctx context.Context, f *os.File, size int64) (string, error) {
	sum := sha256.New()
	buf := make([]byte, hashChunk)
	var total int64
	for {
		if ctx.Err() != nil {
			return "", errors.New("not finished in time")
		}
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		total += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", fmt.Errorf("reading the image: %w", err)
		}
		if total > size {
			break
		}
	}
	if total != size {
		return "", errors.New("changed while it was read")
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// fileKey names the content of a file that only root can change.
type fileKey struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// cacheKey says whether the digest may be kept. All of the key can stay equal
// while a file's own owner changes its content (seen on tmpfs), so the owner
// must be root. Media that a person may mount, with times of their choice,
// come nosuid.
func cacheKey(st *unix.Stat_t, mountFlags int64) (fileKey, bool) {
	keep := st.Uid == 0 && st.Mode&0o022 == 0 && mountFlags&unix.ST_NOSUID == 0
	return fileKey{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, keep
}

type digestCache struct {
	mu      sync.Mutex
	digests map[fileKey]string
}

var digests = digestCache{digests: make(map[fileKey]string)}

func (c *digestCache) get(key fileKey) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	digest, ok := c.digests[key]
	return digest, ok
}

func (c *digestCache) put(key fileKey, digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.digests) >= cacheEntries {
		clear(c.digests)
	}
	c.digests[key] = digest
}
