package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"testing"
)

func someColumns() []columns {
	return []columns{
		{},
		{id: "op-1", state: "executing", session: "s", caller: "boot:1", digest: []byte("d"), unsafe: 1, intent: 7, lastRow: 7, began: 5, at: -5},
		{id: "op-2", state: "denied", code: "c", digest: []byte("d"), idem: []byte("k"), budgetKey: []byte("b"), lastRow: 9, at: 1 << 60},
		{id: "op-3", state: "indeterminate", idem: bytes.Repeat([]byte{0xff}, 32), resolved: 12},
	}
}

// FuzzColumns: nothing but a canonical form is parsed.
func FuzzColumns(f *testing.F) {
	if len(someColumns()) < 4 {
		f.Fatal("the corpus is empty")
	}
	for _, c := range someColumns() {
		f.Add(c.encode())
		if back, err := parseColumns(c.encode()); err != nil || len(back.differences(&c)) != 0 {
			f.Fatalf("%+v became %+v: %v", c, back, err)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseColumns(b)
		if err == nil && !bytes.Equal(c.encode(), b) {
			t.Fatalf("%x was taken for %x", b, c.encode())
		}
	})
}

// TestColumnsAreToldApart: no two operations share a canonical form, also
// where bytes move from one column to the next.
func TestColumnsAreToldApart(t *testing.T) {
	seen := map[string]int{}
	for i, c := range append(someColumns(), columns{id: "ab", state: "c"}, columns{id: "a", state: "bc"},
		columns{idem: []byte("x")}, columns{budgetKey: []byte("x")}, columns{digest: []byte("x")}, columns{began: 1}, columns{at: 1}) {
		if other, twice := seen[string(c.encode())]; twice {
			t.Errorf("operations %d and %d have one form", other, i)
		}
		seen[string(c.encode())] = i
	}
}

// TestTableHashFollowsTheSet: whatever the order, and back again.
func TestTableHashFollowsTheSet(t *testing.T) {
	list := someColumns()
	var forward, backward, none tableHash
	for i := range list {
		forward.add(list[i].encode())
		backward.add(list[len(list)-1-i].encode())
	}
	if forward != backward || forward.sum() != backward.sum() || forward.sum() == none.sum() {
		t.Fatal("the hash depends on the order")
	}
	for i := range list {
		before := forward.sum()
		forward.remove(list[i].encode())
		if forward.sum() == before {
			t.Fatalf("operation %d does not count", i)
		}
	}
	if forward != none {
		t.Fatal("taken back, something is left")
	}
}

// TestTableHashIsLtHash16: sums of 16 bits each, however they lie in words.
func TestTableHashIsLtHash16(t *testing.T) {
	var h tableHash
	var sums [1024]uint16
	for i, c := range someColumns() {
		b := stream(c.encode())
		for k := range sums {
			if n := binary.BigEndian.Uint16(b[2*k:]); i%3 == 2 {
				sums[k] -= n
			} else {
				sums[k] += n
			}
		}
		if i%3 == 2 {
			h.remove(c.encode())
		} else {
			h.add(c.encode())
		}
	}
	var text []byte
	for _, n := range sums {
		text = binary.BigEndian.AppendUint16(text, n)
	}
	if h.sum() != sha256.Sum256(text) {
		t.Error("a sum is not the one of its 16 bits")
	}
}
