package bodies

import (
	"encoding/binary"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	packSuffix = ".pack"
	packMagic  = "yett pack 1\n"
	packHead   = len(packMagic) + 2
	packRecord = 8 + 1 + 4
	// maxPack and maxPackSize bound a pack: it goes as a whole.
	maxPack     = 256
	maxPackSize = 1 << 20
)

// section is where a body lies in its file; of size 0 it is the whole file.
type section struct{ from, size int64 }

// packed returns a pack of sealed bodies of one session, and where they lie in it.
func packed(bodies []*waiting) (whole []byte, parts []section) {
	size := packHead + len(bodies)*packRecord
	for _, b := range bodies {
		parts = append(parts, section{int64(size), int64(len(b.whole))})
		size += len(b.whole)
	}
	whole = append(make([]byte, 0, size), packMagic...)
	whole = binary.BigEndian.AppendUint16(whole, uint16(len(bodies)))
	for _, b := range bodies {
		whole = binary.BigEndian.AppendUint64(whole, uint64(b.name.Row))
		whole = append(whole, byte(slices.Index(Streams(), b.name.Stream)))
		whole = binary.BigEndian.AppendUint32(whole, uint32(len(b.whole)))
	}
	for _, b := range bodies {
		whole = append(whole, b.whole...)
	}
	return whole, parts
}

// parsePack reads what a pack of a session holds. It is good if its bodies fill
// it exactly: one that a crash cut is not.
func parsePack(session string, in io.ReaderAt, size int64) (names []Name, parts []section, ok bool) {
	head := make([]byte, min(size, int64(packHead+maxPack*packRecord)))
	if _, err := in.ReadAt(head, 0); err != nil || len(head) < packHead || string(head[:len(packMagic)]) != packMagic {
		return nil, nil, false
	}
	count := int(binary.BigEndian.Uint16(head[len(packMagic):]))
	at := packHead + count*packRecord
	if at > len(head) {
		return nil, nil, false
	}
	end := int64(at)
	for record := range slices.Chunk(head[packHead:at], packRecord) {
		n := Name{Row: int64(binary.BigEndian.Uint64(record)), Session: session}
		if stream := int(record[8]); stream < len(Streams()) {
			n.Stream = Streams()[stream]
		}
		part := section{end, int64(binary.BigEndian.Uint32(record[9:]))}
		if _, _, good := layout(part.size); !good || !n.valid() {
			return nil, nil, false
		}
		names, parts, end = append(names, n), append(parts, part), end+part.size
	}
	return names, parts, count > 0 && end == size
}

// found reads what lies in a file of the directory, by its name: nothing if it is
// not ours. Torn says that a crash left it half.
func (s *Store) found(file string, size int64) (names []Name, parts []section, torn bool) {
	pack, isPack := strings.CutSuffix(file, packSuffix)
	whole, part := strings.CutSuffix(pack, unfinished)
	name, ours := parseName(whole)
	switch {
	case !ours || isPack && part:
		return nil, nil, false
	case isPack:
		f, err := s.root.OpenFile(file, os.O_RDONLY, 0)
		if err != nil {
			return nil, nil, false // it went meanwhile
		}
		defer f.Close()
		names, parts, ok := parsePack(name.Session, f, size)
		return names, parts, !ok
	}
	_, _, ok := layout(size)
	return []Name{name}, []section{{}}, part || !ok
}
