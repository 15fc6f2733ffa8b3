package macos

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"debug/macho"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Magics and slots of a code signature (kern/cs_blobs.h). Everything in one is
// big-endian.
const (
	magicSuperBlob     = 0xfade0cc0
	magicCodeDirectory = 0xfade0c02

	slotCodeDirectory = 0
	slotAlternate     = 0x1000 // and the four after it
	slotAlternateEnd  = 0x1005
	slotSignature     = 0x10000 // the CMS blob: who signed, checked by Security.framework

	loadCodeSignature = 0x1d // LC_CODE_SIGNATURE
)

// Limits of what is read of a file that anybody may have made.
const (
	maxSignature = 64 << 20
	maxBlobs     = 32
	minPageBits  = 12
	maxPageBits  = 16
	headerSize   = 44 // of a code directory of the oldest version that is taken
	maxSlices    = 8  // of a universal file
)

// ErrNoSignature means that a file has no code signature, which a Mach-O may
// lawfully lack.
var ErrNoSignature = errors.New("no code signature")

// Code is one architecture's code in a Mach-O file, with what its best code
// directory says. The self-test compares it with what the kernel says of the
// live process; it proves nothing about who signed.
type Code struct {
	CPU        macho.Cpu
	Identifier string
	Team       string
	Flags      Status // as in the directory; the kernel adds to them
	CDHash     CDHash

	file     io.ReaderAt // this architecture's part
	limit    int64       // bytes that the pages cover
	pageBits uint8
	hash     hashKind
	pages    [][]byte // digest of each page
	special  [][]byte // digests of blobs, from slot 1 on
	blobs    map[uint32][]byte
}

type hashKind struct {
	name string
	rank int
	size int // as it stands in the directory
	sum  func([]byte) []byte
}

// hashKinds by their number in a code directory. SHA-1 is read by no system
// that Yett would run on, and refused.
var hashKinds = map[byte]hashKind{
	2: {"sha256", 2, 32, func(b []byte) []byte { h := sha256.Sum256(b); return h[:] }},
	3: {"sha256-truncated", 1, 20, func(b []byte) []byte { h := sha256.Sum256(b); return h[:20] }},
	4: {"sha384", 3, 48, func(b []byte) []byte { h := sha512.Sum384(b); return h[:] }},
}

// ReadCode reads the signatures of a Mach-O file of size bytes: one for each
// architecture of a universal file. It reads no page; see Verify.
func ReadCode(r io.ReaderAt, size int64) ([]Code, error) {
	fat, err := macho.NewFatFile(io.NewSectionReader(r, 0, size))
	switch {
	case err == nil:
		defer fat.Close()
		if len(fat.Arches) > maxSlices {
			return nil, fmt.Errorf("a universal file of %d architectures", len(fat.Arches))
		}
		var all []Code
		for _, a := range fat.Arches {
			c, err := readSlice(io.NewSectionReader(r, int64(a.Offset), int64(a.Size)), a.File, int64(a.Size))
			if err != nil {
				return nil, fmt.Errorf("%v: %w", a.Cpu, err)
			}
			all = append(all, c)
		}
		return all, nil
	case !errors.Is(err, macho.ErrNotFat):
		return nil, fmt.Errorf("reading a universal file: %w", err)
	}
	f, err := macho.NewFile(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, fmt.Errorf("reading a Mach-O file: %w", err)
	}
	defer f.Close()
	c, err := readSlice(io.NewSectionReader(r, 0, size), f, size)
	if err != nil {
		return nil, err
	}
	return []Code{c}, nil
}

func readSlice(r io.ReaderAt, f *macho.File, size int64) (Code, error) {
	var at, n int64
	for _, l := range f.Loads {
		raw := l.Raw()
		if len(raw) >= 16 && f.ByteOrder.Uint32(raw) == loadCodeSignature {
			if n != 0 {
				return Code{}, errors.New("two code signatures")
			}
			at, n = int64(f.ByteOrder.Uint32(raw[8:])), int64(f.ByteOrder.Uint32(raw[12:]))
		}
	}
	if n == 0 {
		return Code{}, ErrNoSignature
	}
	if n > maxSignature || at+n != size { // the signature is the last thing in a file
		return Code{}, fmt.Errorf("a code signature of %d bytes at %d in a file of %d", n, at, size)
	}
	raw := make([]byte, n)
	if _, err := r.ReadAt(raw, at); err != nil && err != io.EOF {
		return Code{}, fmt.Errorf("reading the code signature: %w", err)
	}
	c, err := parseSignature(raw)
	if err != nil {
		return Code{}, err
	}
	if c.limit != at {
		return Code{}, fmt.Errorf("pages are signed up to byte %d, the signature begins at %d", c.limit, at)
	}
	c.CPU, c.file = f.Cpu, r
	return c, nil
}

// parseSignature reads a SuperBlob and the best of its code directories. The
// blobs have to lie one after another and cover it: nothing in it is unread.
func parseSignature(raw []byte) (Code, error) {
	blobs, err := splitSuperBlob(raw)
	if err != nil {
		return Code{}, err
	}
	best := Code{}
	for slot, b := range blobs {
		if slot != slotCodeDirectory && (slot < slotAlternate || slot >= slotAlternateEnd) {
			continue
		}
		c, err := parseDirectory(b)
		if err != nil {
			return Code{}, err
		}
		if c.hash.rank > best.hash.rank {
			best = c
		}
	}
	if best.hash.rank == 0 {
		return Code{}, errors.New("a code signature without a code directory")
	}
	best.blobs = blobs
	return best, best.checkBlobs()
}

func splitSuperBlob(raw []byte) (map[uint32][]byte, error) {
	if len(raw) < 12 || binary.BigEndian.Uint32(raw) != magicSuperBlob {
		return nil, errors.New("a code signature of another form")
	}
	length, count := binary.BigEndian.Uint32(raw[4:]), binary.BigEndian.Uint32(raw[8:])
	if uint64(length) > uint64(len(raw)) || count > maxBlobs || 12+8*count > length {
		return nil, fmt.Errorf("a code signature of %d blobs in %d bytes", count, length)
	}
	for _, b := range raw[length:] {
		if b != 0 {
			return nil, errors.New("bytes after the code signature")
		}
	}
	blobs, next := map[uint32][]byte{}, 12+8*count
	for i := range count {
		slot, at := binary.BigEndian.Uint32(raw[12+8*i:]), binary.BigEndian.Uint32(raw[16+8*i:])
		if at != next || uint64(at)+8 > uint64(length) {
			return nil, fmt.Errorf("blob %d of a code signature lies at %d, want %d", i, at, next)
		}
		n := binary.BigEndian.Uint32(raw[at+4:])
		if n < 8 || uint64(at)+uint64(n) > uint64(length) {
			return nil, fmt.Errorf("blob %d of a code signature has %d bytes", i, n)
		}
		if _, double := blobs[slot]; double {
			return nil, fmt.Errorf("two blobs in slot %#x", slot)
		}
		blobs[slot], next = raw[at:at+n], at+n
	}
	if next != length {
		return nil, errors.New("bytes between the blobs of a code signature")
	}
	return blobs, nil
}

func parseDirectory(b []byte) (Code, error) {
	if len(b) < headerSize || binary.BigEndian.Uint32(b) != magicCodeDirectory {
		return Code{}, errors.New("a code directory of another form")
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	version, hashAt, specials, pages := u32(8), u32(16), u32(24), u32(28)
	kind, known := hashKinds[b[37]]
	switch {
	case !known:
		return Code{}, fmt.Errorf("a code directory with hash kind %d", b[37])
	case int(b[36]) != kind.size:
		return Code{}, fmt.Errorf("%s hashes of %d bytes", kind.name, b[36])
	case b[39] < minPageBits || b[39] > maxPageBits:
		return Code{}, fmt.Errorf("pages of 2^%d bytes", b[39])
	}
	c := Code{Flags: Status(u32(12)), hash: kind, pageBits: b[39], limit: int64(u32(32))}
	if version >= 0x20300 && len(b) >= 64 {
		if wide := binary.BigEndian.Uint64(b[56:]); wide != 0 {
			c.limit = int64(wide)
		}
	}
	size, want := uint64(kind.size), (uint64(c.limit)+1<<c.pageBits-1)>>c.pageBits
	if c.limit <= 0 || uint64(pages) != want || uint64(specials)*size > uint64(hashAt) || uint64(hashAt)+uint64(pages)*size != uint64(len(b)) {
		return Code{}, fmt.Errorf("a code directory of %d pages for %d bytes", pages, c.limit)
	}
	for i := range uint64(pages) {
		at := uint64(hashAt) + i*size
		c.pages = append(c.pages, b[at:at+size])
	}
	for i := uint64(1); i <= uint64(specials); i++ {
		at := uint64(hashAt) - i*size
		c.special = append(c.special, b[at:at+size])
	}
	var err error
	if c.Identifier, err = stringAt(b, u32(20)); err != nil {
		return Code{}, err
	}
	if version >= 0x20200 && len(b) >= 52 && u32(48) != 0 {
		if c.Team, err = stringAt(b, u32(48)); err != nil {
			return Code{}, err
		}
	}
	copy(c.CDHash[:], kind.sum(b))
	return c, nil
}

func stringAt(b []byte, at uint32) (string, error) {
	if at < headerSize || uint64(at) >= uint64(len(b)) {
		return "", fmt.Errorf("a name at byte %d of a code directory of %d", at, len(b))
	}
	end := bytes.IndexByte(b[at:], 0)
	if end < 0 || end > maxIdentifier {
		return "", errors.New("a name in a code directory has no end")
	}
	return string(b[at : int(at)+end]), nil
}

// checkBlobs compares the blobs with the directory's digests of them. A blob
// that the directory does not know is refused, but for the signature over it.
func (c Code) checkBlobs() error {
	for slot, b := range c.blobs {
		switch {
		case slot == slotCodeDirectory, slot >= slotAlternate && slot < slotAlternateEnd, slot == slotSignature:
		case slot > uint32(len(c.special)):
			return fmt.Errorf("a blob in slot %#x that the code directory does not know", slot)
		case !bytes.Equal(c.hash.sum(b), c.special[slot-1]):
			return fmt.Errorf("the blob in slot %#x is not the one that was signed", slot)
		}
	}
	return nil
}

// Verify reads the file and compares each page with the code directory.
func (c Code) Verify() error {
	for i := range c.pages {
		if err := c.verifyPage(i); err != nil {
			return err
		}
	}
	return nil
}

func (c Code) verifyPage(i int) error {
	page := int64(1) << c.pageBits
	at := int64(i) * page
	buf := make([]byte, min(page, c.limit-at))
	if _, err := c.file.ReadAt(buf, at); err != nil && err != io.EOF {
		return fmt.Errorf("reading page %d: %w", i, err)
	}
	if !bytes.Equal(c.hash.sum(buf), c.pages[i]) {
		return fmt.Errorf("page %d is not the one that was signed", i)
	}
	return nil
}
