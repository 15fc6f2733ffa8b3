package main

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/yett-broker/yett/internal/macos"
)

// Layout of a Mach-O file of 64 bits and of an ad hoc signature (mach-o/loader.h,
// kern/cs_blobs.h).
const (
	machoHeader = 32

	commandSegment   = 0x19
	commandSignature = 0x1d
	signatureCommand = 16 // bytes

	directoryHeader = 88 // of version 0x20400
	directoryStart  = 20 // behind the SuperBlob's header and its one entry
	signedPage      = 4096

	flagAdHoc      = 0x2
	execMainBinary = 0x1
)

// signAdHoc returns a Mach-O program of 64 bits with an ad hoc signature: one
// code directory, by nobody, in place of any signature that it has. macOS runs
// no program without one on arm64, and Yett refuses an unsigned caller on both;
// Go's linker signs for arm64 alone.
func signAdHoc(program []byte, identifier string, flags uint32) ([]byte, error) {
	p, err := splitSignature(program)
	if err != nil {
		return nil, err
	}
	size := directoryStart + directoryHeader + len(identifier) + 1 + sha256.Size*((len(p.code)+signedPage-1)/signedPage)
	put := binary.LittleEndian
	put.PutUint32(p.code[p.command:], commandSignature)
	put.PutUint32(p.code[p.command+4:], signatureCommand)
	put.PutUint32(p.code[p.command+8:], uint32(len(p.code)))
	put.PutUint32(p.code[p.command+12:], uint32(size))
	linkedit := uint64(len(p.code)) + uint64(size) - put.Uint64(p.code[p.linkedit+40:])
	put.PutUint64(p.code[p.linkedit+48:], linkedit)
	put.PutUint64(p.code[p.linkedit+32:], linkedit) // in memory, as Go's linker has it
	return append(p.code, directory(p, identifier, flags, size)...), nil
}

// unsigned is a program without its signature, and where its commands lie.
type unsigned struct {
	code     []byte
	command  int // the command that names the signature
	linkedit int // the command of the segment that the signature belongs to
	text     macho.SegmentHeader
}

func splitSignature(program []byte) (*unsigned, error) {
	f, err := macho.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("reading a program: %w", err)
	}
	defer f.Close()
	if f.Magic != macho.Magic64 || f.ByteOrder != binary.LittleEndian || f.Type != macho.TypeExec {
		return nil, errors.New("not a program of 64 bits, little-endian")
	}
	p := &unsigned{code: bytes.Clone(program)}
	at, end := machoHeader, len(program)
	for _, l := range f.Loads {
		switch raw := l.Raw(); f.ByteOrder.Uint32(raw) {
		case commandSignature:
			p.command, end = at, int(f.ByteOrder.Uint32(raw[8:]))
		case commandSegment:
			switch s := l.(*macho.Segment); s.Name {
			case "__LINKEDIT":
				p.linkedit = at
			case "__TEXT":
				p.text = s.SegmentHeader
			}
		}
		at += len(l.Raw())
	}
	if p.linkedit == 0 || p.text.Filesz == 0 || end > len(program) {
		return nil, errors.New("a program without the segments that a signature is about")
	}
	p.code = p.code[:end]
	for len(p.code)%16 != 0 {
		p.code = append(p.code, 0)
	}
	if p.command != 0 {
		return p, nil
	}
	p.command = at
	return p, p.addCommand(f)
}

// addCommand makes room for one more command. Linkers leave some before the
// first section.
func (p *unsigned) addCommand(f *macho.File) error {
	first := uint32(len(p.code))
	for _, s := range f.Sections {
		if s.Offset != 0 {
			first = min(first, s.Offset)
		}
	}
	if p.command+signatureCommand > int(first) {
		return errors.New("no room for a signature's command")
	}
	binary.LittleEndian.PutUint32(p.code[16:], f.Ncmd+1)
	binary.LittleEndian.PutUint32(p.code[20:], f.Cmdsz+signatureCommand)
	return nil
}

// directory is the whole signature: a SuperBlob of one code directory.
func directory(p *unsigned, identifier string, flags uint32, size int) []byte {
	pages := (len(p.code) + signedPage - 1) / signedPage
	u32 := func(b []byte, words ...uint32) []byte {
		for _, w := range words {
			b = binary.BigEndian.AppendUint32(b, w)
		}
		return b
	}
	hashes := uint32(directoryHeader + len(identifier) + 1)
	b := u32(nil, 0xfade0cc0, uint32(size), 1, 0, directoryStart)
	b = u32(b, 0xfade0c02, uint32(size-directoryStart), 0x20400, flags, hashes, directoryHeader, 0, uint32(pages), uint32(len(p.code)))
	b = append(b, sha256.Size, 2, 0, 12)    // SHA-256, pages of 2^12 bytes
	b = u32(b, 0, 0, 0, 0)                  // no scatter, no team
	b = binary.BigEndian.AppendUint64(b, 0) // the limit fits above
	for _, n := range []uint64{p.text.Offset, p.text.Filesz, execMainBinary} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, identifier+"\x00"...)
	for at := 0; at < len(p.code); at += signedPage {
		sum := sha256.Sum256(p.code[at:min(at+signedPage, len(p.code))])
		b = append(b, sum[:]...)
	}
	return b
}

// universal joins programs of several architectures into one file, each at a
// page of its own (mach-o/fat.h).
func universal(programs ...[]byte) ([]byte, error) {
	const entry, align = 20, 14 // 2^14: the larger page of both architectures
	head := binary.BigEndian.AppendUint32(nil, macho.MagicFat)
	head = binary.BigEndian.AppendUint32(head, uint32(len(programs)))
	at := uint64(8 + entry*len(programs))
	var out []byte
	for _, p := range programs {
		f, err := macho.NewFile(bytes.NewReader(p))
		if err != nil {
			return nil, fmt.Errorf("reading a program: %w", err)
		}
		at = (at + 1<<align - 1) &^ (1<<align - 1)
		if at+uint64(len(p)) > 1<<32-1 {
			return nil, errors.New("a universal file of more than 4 GiB")
		}
		for _, w := range []uint32{uint32(f.Cpu), f.SubCpu, uint32(at), uint32(len(p)), align} {
			head = binary.BigEndian.AppendUint32(head, w)
		}
		out = append(append(out, make([]byte, int(at)-len(out))...), p...)
		at += uint64(len(p))
	}
	copy(out, head)
	return out, nil
}

// checkSigned reads a universal file as Yett reads a caller's program: every
// architecture has a signature, and every page is the one that was signed.
func checkSigned(program []byte) error {
	codes, err := macos.ReadCode(bytes.NewReader(program), int64(len(program)))
	if err != nil {
		return err
	}
	for _, c := range codes {
		if err := c.Verify(); err != nil {
			return fmt.Errorf("%v: %w", c.CPU, err)
		}
	}
	return nil
}
