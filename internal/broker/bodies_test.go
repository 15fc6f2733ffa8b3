package broker

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// withBodies is a broker that has nothing but a store of bodies.
func withBodies(t *testing.T) *Broker {
	t.Helper()
	store, err := bodies.Open(t.TempDir(), bodies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	store.Unlock(bytes.Repeat([]byte{7}, 32))
	return &Broker{Config: Config{Bodies: store, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
}

func keepBody(t *testing.T, b *Broker, session_ string, row int64, stream string, body []byte) string {
	t.Helper()
	ref, notKept := b.keepAll(&operation{intent: row, session: &session.Session{ID: session_}}, stream, body)
	if notKept != "" {
		t.Fatal(notKept)
	}
	return ref
}

func TestReadBody(t *testing.T) {
	b := withBodies(t)
	ch, own := &channel{b: b}, &session.Session{ID: "s_1"}
	keepBody(t, b, "s_1", 1, bodies.Body, []byte("0123456789"))
	keepBody(t, b, "s_1", 1, bodies.Stderr, []byte("err"))
	keepBody(t, b, "s_2", 3, bodies.Body, []byte("another's"))
	keepBody(t, b, "s_1", 4, bodies.Body, nil)
	for _, test := range []struct {
		offset, limit int64
		want          string
		eof           bool
	}{
		{0, 4, "0123", false}, {4, 6, "456789", true}, {4, 5, "45678", false}, {0, 10, "0123456789", true},
		{9, wire.MaxBodyChunk, "9", true}, {10, 1, "", true}, {11, 1, "", true}, {9223372036854775807, wire.MaxBodyChunk, "", true},
	} {
		got, fail := ch.readBody(own, wire.OperationBody{BodyRef: "activity:1", Offset: test.offset, Limit: test.limit})
		if fail != nil {
			t.Errorf("%d+%d: %v", test.offset, test.limit, fail)
			continue
		}
		r := got.(wire.OperationBodyResult)
		if !bytes.Equal(r.BytesBase64, []byte(test.want)) || r.EOF != test.eof || r.Size != 10 {
			t.Errorf("%d+%d: %q, %+v", test.offset, test.limit, r.BytesBase64, r)
		}
	}
	if got, fail := ch.readBody(own, wire.OperationBody{BodyRef: "activity:1/stderr", Limit: 10}); fail != nil || string(got.(wire.OperationBodyResult).BytesBase64) != "err" {
		t.Errorf("standard error: %v, %v", got, fail)
	}
	// An empty body is an empty string on the wire, not null.
	if got, fail := ch.readBody(own, wire.OperationBody{BodyRef: "activity:4", Limit: 10}); fail != nil || !strings.Contains(string(marshal(got)), `"bytes_base64":""`) {
		t.Errorf("an empty body: %v, %v", got, fail)
	}
	for _, m := range []wire.OperationBody{
		{BodyRef: "activity:1", Offset: -1, Limit: 1}, {BodyRef: "activity:1", Limit: 0}, {BodyRef: "activity:1", Limit: -1},
		{BodyRef: "activity:1", Limit: wire.MaxBodyChunk + 1}, {BodyRef: "activity:1", Limit: 9223372036854775807},
		{BodyRef: "activity:2", Limit: 1}, {BodyRef: "", Limit: 1}, {BodyRef: "activity:01", Limit: 1}, {BodyRef: "activity:+1", Limit: 1},
		{BodyRef: "activity:1/stdout", Limit: 1}, {BodyRef: "activity:3", Limit: 1}, {BodyRef: "activity:3.s_2", Limit: 1},
		{BodyRef: "activity:../3", Limit: 1}, {BodyRef: "activity:4/stderr", Limit: 1},
	} {
		if _, fail := ch.readBody(own, m); fail == nil || fail.Code != wire.CodeBadRequest {
			t.Errorf("%+v: %v", m, fail)
		}
	}
	// While locked nobody reads.
	b.Bodies.Lock()
	if _, fail := ch.readBody(own, wire.OperationBody{BodyRef: "activity:1", Limit: 1}); fail == nil || fail.Code != wire.CodeLocked {
		t.Errorf("locked: %v", fail)
	}
}

// What cannot be kept is said, and takes nothing from the action.
func TestABodyThatIsNotKept(t *testing.T) {
	b := withBodies(t)
	b.Bodies.Lock()
	ref, why := b.keepAll(&operation{intent: 1, session: &session.Session{ID: "s_1"}}, bodies.Body, []byte("x"))
	if ref != "" || why != "Yett was locked meanwhile" {
		t.Errorf("%q, %q", ref, why)
	}
}

func TestSearchesThatAreRefused(t *testing.T) {
	b := withBodies(t)
	b.searches = make(chan struct{}, 1)
	ch, own := &channel{b: b}, &session.Session{ID: "s_1"}
	ref := keepBody(t, b, "s_1", 1, bodies.Body, []byte("{\"a\": [1, 2]}\nx"))
	grep, pointer, none, many, bad := "a", "/a/*", 0, 1001, "("
	for name, m := range map[string]wire.OperationBody{
		"both":                {Grep: &grep, JSON: &pointer, Limit: 1 << 16},
		"context without":     {Context: &none, Limit: 1 << 16},
		"matches with json":   {JSON: &pointer, Matches: &many, Limit: 1 << 16},
		"no room":             {Grep: &grep, Limit: bodies.MinShown - 1},
		"too many":            {Grep: &grep, Matches: &many, Limit: 1 << 16},
		"none":                {Grep: &grep, Matches: &none, Limit: 1 << 16},
		"no expression":       {Grep: &bad, Limit: 1 << 16},
		"no pointer":          {JSON: &grep, Limit: 1 << 16},
		"an offset with json": {JSON: &pointer, Offset: 1, Limit: 1 << 16},
		"a negative offset":   {Grep: &grep, Offset: -1, Limit: 1 << 16},
		"not JSON":            {JSON: &pointer, Limit: 1 << 16},
	} {
		m.BodyRef = ref
		if _, fail := ch.readBody(own, m); fail == nil || fail.Code != wire.CodeBadRequest {
			t.Errorf("%s: %v", name, fail)
		}
	}
	got, fail := ch.readBody(own, wire.OperationBody{BodyRef: ref, Grep: &grep, Limit: 1 << 16})
	if fail != nil {
		t.Fatal(fail)
	}
	if raw := string(marshal(got)); !strings.Contains(raw, `"eof":true,"matches":1`) || strings.Contains(raw, "next_offset") {
		t.Error(raw)
	}
}
