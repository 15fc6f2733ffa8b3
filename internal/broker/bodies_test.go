package broker

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// A session keeps a bounded number of bytes; the oldest bodies go first.
func TestTheOldestBodiesGoFirst(t *testing.T) {
	var b bodies
	half := make([]byte, maxBodies/2)
	b.put("activity:1", half)
	b.put("activity:2", half)
	if _, ok := b.get("activity:1"); !ok {
		t.Error("a body within the bound is gone")
	}
	b.put("activity:3", []byte("x"))
	if _, ok := b.get("activity:1"); ok {
		t.Error("the oldest body is kept beyond the bound")
	}
	for _, ref := range []string{"activity:2", "activity:3"} {
		if _, ok := b.get(ref); !ok {
			t.Errorf("%s is gone", ref)
		}
	}
	for n := range 20_000 {
		b.put(fmt.Sprint("activity:many:", n), half[:1<<20][:maxBodies/1000])
	}
	kept := 0
	for _, body := range b.byRef {
		kept += len(body)
	}
	if kept > maxBodies || kept != b.size || len(b.order) != len(b.byRef) {
		t.Errorf("%d bytes are kept and %d counted; %d refs, %d in order", kept, b.size, len(b.byRef), len(b.order))
	}
	// What has just come can be read, however large.
	b.put("activity:large", make([]byte, maxBodies+1))
	if body, ok := b.get("activity:large"); !ok || len(body) != maxBodies+1 || len(b.byRef) != 1 {
		t.Errorf("the newest body is gone, or others stay beside it")
	}
	b.end()
	if _, ok := b.get("activity:large"); ok || b.size != 0 {
		t.Error("bodies outlive their session")
	}
	b.put("activity:9", []byte("x"))
	if _, ok := b.get("activity:9"); ok || b.size != 0 {
		t.Error("a body that came after its session's end is kept")
	}
}

func TestReadBody(t *testing.T) {
	ch, body := &channel{}, []byte("0123456789")
	ch.refs.put("activity:1", body)
	for _, test := range []struct {
		offset, limit int64
		want          string
		eof           bool
	}{
		{0, 4, "0123", false}, {4, 6, "456789", true}, {4, 5, "45678", false}, {0, 10, "0123456789", true},
		{9, wire.MaxBodyChunk, "9", true}, {10, 1, "", true}, {11, 1, "", true}, {9223372036854775807, wire.MaxBodyChunk, "", true},
	} {
		got, fail := ch.readBody(nil, wire.OperationBody{BodyRef: "activity:1", Offset: test.offset, Limit: test.limit})
		if fail != nil {
			t.Errorf("%d+%d: %v", test.offset, test.limit, fail)
			continue
		}
		r := got.(wire.OperationBodyResult)
		if !bytes.Equal(r.BytesBase64, []byte(test.want)) || r.EOF != test.eof || r.Size != 10 {
			t.Errorf("%d+%d: %q, %+v", test.offset, test.limit, r.BytesBase64, r)
		}
	}
	for _, m := range []wire.OperationBody{
		{BodyRef: "activity:1", Offset: -1, Limit: 1}, {BodyRef: "activity:1", Limit: 0}, {BodyRef: "activity:1", Limit: -1},
		{BodyRef: "activity:1", Limit: wire.MaxBodyChunk + 1}, {BodyRef: "activity:1", Limit: 9223372036854775807},
		{BodyRef: "activity:2", Limit: 1}, {BodyRef: "", Limit: 1},
	} {
		if _, fail := ch.readBody(nil, m); fail == nil || fail.Code != wire.CodeBadRequest {
			t.Errorf("%+v: %v", m, fail)
		}
	}
	// A body belongs to its channel: another one does not know it.
	if _, fail := (&channel{}).readBody(nil, wire.OperationBody{BodyRef: "activity:1", Limit: 1}); fail == nil {
		t.Error("another channel reads the body")
	}
}
