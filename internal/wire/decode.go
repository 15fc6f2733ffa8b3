package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Request is one decoded request frame.
type Request struct {
	ID     json.RawMessage // a JSON string or number, echoed in the reply
	Method string
	Params json.RawMessage
}

// DecodeRequest decodes a frame. The error says whether the channel must be
// closed (Code protocol_error) or stays open (bad_request); the returned
// request carries the ID when the frame has a usable one, so that the error
// can be answered.
func DecodeRequest(frame []byte) (Request, *Error) {
	if err := checkStrict(frame); err != nil {
		return Request{}, err
	}
	var in struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id" wire:"optional"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params"`
	}
	err := decodeObject(frame, &in)
	req := Request{ID: in.ID, Method: in.Method, Params: in.Params}
	switch {
	case len(in.ID) == 0 || (in.ID[0] != '"' && in.ID[0] != '-' && (in.ID[0] < '0' || in.ID[0] > '9')):
		req.ID = nil
		return req, Errorf(CodeProtocolError, "the request has no usable id (a string or a number)")
	case len(in.ID) > maxID:
		req.ID = nil
		return req, Errorf(CodeProtocolError, "the request's id is longer than %d bytes", maxID)
	case err != nil:
		return req, err
	case in.JSONRPC != "2.0":
		return req, Errorf(CodeBadRequest, "jsonrpc must be \"2.0\"")
	case in.Params[0] != '{':
		return req, Errorf(CodeBadRequest, "params must be an object")
	}
	return req, nil
}

// DecodeParams decodes a JSON object that DecodeRequest has checked into the
// struct that dst points to. Members are matched exactly. A field is required
// unless it is tagged `wire:"optional"`. What could be decoded is in dst even
// when an error is returned, so that a session and a sequence number can be
// judged before a missing member is.
func DecodeParams(raw json.RawMessage, dst any) *Error { return decodeObject(raw, dst) }

// checkStrict refuses what no request may contain, wherever it stands.
func checkStrict(frame []byte) *Error {
	if !utf8.Valid(frame) {
		return Errorf(CodeProtocolError, "the message is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(frame))
	dec.UseNumber()
	type level struct {
		object  bool
		wantKey bool
		keys    []string
	}
	var stack []level
	for first := true; ; first = false {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) && !first && len(stack) == 0 {
			return nil
		}
		if err != nil {
			return Errorf(CodeProtocolError, "the message is not JSON")
		}
		if first && tok != json.Delim('{') {
			return Errorf(CodeProtocolError, "the message is not a JSON object")
		}
		if !first && len(stack) == 0 {
			return Errorf(CodeProtocolError, "data follows the message on its line")
		}
		if n := len(stack); n > 0 && stack[n-1].object {
			top := &stack[n-1]
			if key, ok := tok.(string); ok && top.wantKey {
				folded := foldKey(key)
				for _, k := range top.keys {
					if k == folded {
						return Errorf(CodeProtocolError, "a member stands twice (names are compared without regard to case)")
					}
				}
				if len(top.keys) >= maxMembers {
					return Errorf(CodeProtocolError, "an object has more than %d members", maxMembers)
				}
				top.keys = append(top.keys, folded)
				top.wantKey = false
				continue
			}
			top.wantKey = true // tok is a value, or the end of this object
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			if len(stack) >= MaxDepth {
				return Errorf(CodeProtocolError, "the message is nested deeper than %d", MaxDepth)
			}
			stack = append(stack, level{object: tok == json.Delim('{'), wantKey: true})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
	}
}

// maxID bounds what a reply repeats: an id as long as a frame would make the
// reply longer than a frame.
const maxID = 256

// maxMembers bounds the quadratic comparison of member names.
const maxMembers = 256

// foldKey maps names that encoding/json would take for one another to one
// string: Unicode simple folding, so that U+017F is 's' and U+212A is 'k'.
func foldKey(s string) string {
	return strings.Map(func(r rune) rune {
		low := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			low = min(low, f)
		}
		return low
	}, s)
}

var rawType = reflect.TypeFor[json.RawMessage]() // judged when it is decoded itself

type field struct {
	name     string
	index    int
	optional bool
}

var fieldCache sync.Map // reflect.Type → []field

func fieldsOf(t reflect.Type) []field {
	if c, ok := fieldCache.Load(t); ok {
		return c.([]field)
	}
	var fs []field
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fs = append(fs, field{name, i, t.Field(i).Tag.Get("wire") == "optional"})
	}
	fieldCache.Store(t, fs)
	return fs
}

// decodeObject fills dst, a pointer to a struct. An unknown member outranks a
// missing or mistyped one, at any depth, because it closes the channel.
func decodeObject(raw []byte, dst any) *Error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return Errorf(CodeBadRequest, "an object is required")
	}
	v := reflect.ValueOf(dst).Elem()
	var bad *Error
	seen := 0
	for _, f := range fieldsOf(v.Type()) {
		val, ok := members[f.name]
		if !ok {
			if !f.optional && bad == nil {
				bad = Errorf(CodeBadRequest, "%s is missing", f.name)
			}
			continue
		}
		seen++
		if err := decodeMember(f.name, val, v.Field(f.index)); err != nil {
			if err.Code == CodeProtocolError {
				return err
			}
			if bad == nil {
				bad = err
			}
		}
	}
	if seen != len(members) {
		return Errorf(CodeProtocolError, "the message has a member that this protocol does not know")
	}
	return bad
}

func decodeMember(name string, raw json.RawMessage, v reflect.Value) *Error {
	if bytes.Equal(raw, []byte("null")) {
		return Errorf(CodeBadRequest, "%s is null", name)
	}
	if t := v.Type(); t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && t.Elem() != timeType {
		p := reflect.New(t.Elem())
		err := decodeObject(raw, p.Interface())
		v.Set(p)
		if err != nil && err.Code == CodeBadRequest {
			return Errorf(CodeBadRequest, "%s: %s", name, err.Message)
		}
		return err
	}
	p := reflect.New(v.Type())
	if err := json.Unmarshal(raw, p.Interface()); err != nil || v.Type() != rawType && holdsNull(raw) {
		return Errorf(CodeBadRequest, "%s has the wrong type: want %s", name, typeWord(v.Type()))
	}
	v.Set(p.Elem())
	return nil
}

// holdsNull reports whether a null stands inside an array or object: there
// encoding/json would take it for the zero value.
func holdsNull(raw []byte) bool {
	if raw[0] != '[' && raw[0] != '{' || !bytes.Contains(raw, []byte("null")) {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		if tok == nil {
			return true
		}
	}
}

func typeWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return typeWord(t.Elem())
	}
	return fmt.Sprint(t.Kind())
}
