package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// maxID bounds what a reply repeats: an id as long as a frame would make the
// reply longer than a frame.
const maxID = 256

// Request is one decoded request frame.
type Request struct {
	ID     json.RawMessage // a JSON string or number, echoed in the reply
	Method string
	Params json.RawMessage // valid as long as the frame is

	params value
}

// Decode decodes the parameters into the struct that dst points to, like
// DecodeParams but without reading them again.
func (r Request) Decode(dst any) *Error { return decodeObject(r.params, dst) }

// DecodeRequest decodes a frame. The error says whether the channel must be
// closed (Code protocol_error) or stays open (bad_request); the returned
// request carries the ID when the frame has a usable one, so that the error
// can be answered.
func DecodeRequest(frame []byte) (Request, *Error) {
	top, fail := parse(frame)
	if fail != nil {
		return Request{ID: readableID(frame)}, fail
	}
	if top.kind != '{' {
		return Request{}, Errorf(CodeProtocolError, "the message is not a JSON object")
	}
	var in struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id" wire:"optional"`
		Method  string          `json:"method"`
		Params  value           `json:"params"`
	}
	err := decodeObject(top, &in)
	req := Request{ID: in.ID, Method: in.Method, Params: in.Params.raw, params: in.Params}
	switch {
	case !isID(in.ID):
		req.ID = nil
		return req, Errorf(CodeProtocolError, "the request has no usable id (a string or a number)")
	case len(in.ID) > maxID:
		req.ID = nil
		return req, Errorf(CodeProtocolError, "the request's id is longer than %d bytes", maxID)
	case err != nil:
		return req, err
	case in.JSONRPC != "2.0":
		return req, Errorf(CodeBadRequest, "jsonrpc must be \"2.0\"")
	case in.Params.kind != '{':
		return req, Errorf(CodeBadRequest, "params must be an object")
	}
	return req, nil
}

func isID(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// readableID returns the id of a frame that is JSON but is refused for what else
// it says, so that its sender learns which request was meant.
func readableID(frame []byte) json.RawMessage {
	id, _, fail := CheckStrict(frame, Limits{Depth: MaxDepth, Members: maxMembers})
	if fail != nil || !isID(id) || len(id) > maxID {
		return nil
	}
	return bytes.Clone(id)
}

// DecodeParams decodes a JSON object, as strictly as DecodeRequest, into the
// struct that dst points to. Members are matched exactly. A field is required
// unless it is tagged `wire:"optional"`. What could be decoded is in dst even
// when an error is returned, so that a session and a sequence number can be
// judged before a missing member is.
func DecodeParams(raw json.RawMessage, dst any) *Error {
	v, fail := parse(raw)
	if fail != nil {
		return fail
	}
	return decodeObject(v, dst)
}

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
func decodeObject(from value, dst any) *Error {
	if from.kind != '{' {
		return Errorf(CodeBadRequest, "an object is required")
	}
	v := reflect.ValueOf(dst).Elem()
	var bad *Error
	seen := 0
	for _, f := range fieldsOf(v.Type()) {
		val, ok := from.member(f.name)
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
	if seen != len(from.members) {
		return Errorf(CodeProtocolError, "the message has a member that this protocol does not know")
	}
	return bad
}

var (
	valueType = reflect.TypeFor[value]()
	rawType   = reflect.TypeFor[json.RawMessage]()
	queryType = reflect.TypeFor[Query]()
	bytesType = reflect.TypeFor[[]byte]()
)

func decodeMember(name string, from value, v reflect.Value) *Error {
	t := v.Type()
	if from.kind == 'n' {
		return Errorf(CodeBadRequest, "%s is null", name)
	}
	switch {
	case t == valueType:
		v.Set(reflect.ValueOf(from))
		return nil
	case t == rawType:
		v.SetBytes(bytes.Clone(from.raw))
		return nil
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && t.Elem() != timeType:
		p := reflect.New(t.Elem())
		err := decodeObject(from, p.Interface())
		v.Set(p)
		if err != nil && err.Code == CodeBadRequest {
			return Errorf(CodeBadRequest, "%s: %s", name, err.Message)
		}
		return err
	case t.Kind() == reflect.Pointer:
		p := reflect.New(t.Elem())
		if err := decodeMember(name, from, p.Elem()); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case t.Kind() == reflect.String && from.kind == '"':
		v.SetString(from.text())
		return nil
	}
	p := reflect.New(t)
	if from.holdsNull() || json.Unmarshal(from.raw, p.Interface()) != nil {
		return Errorf(CodeBadRequest, "%s has the wrong type: want %s", name, typeWord(t))
	}
	v.Set(p.Elem())
	return nil
}

func typeWord(t reflect.Type) string {
	switch t {
	case timeType:
		return "a time"
	case queryType:
		return "an object of strings or arrays of strings"
	case bytesType:
		return "a string of base64"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Slice:
		return "an array" + ofWhat(t.Elem())
	case reflect.Map:
		return "an object" + ofWhat(t.Elem())
	case reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return typeWord(t.Elem())
	}
	return fmt.Sprint(t.Kind())
}

func ofWhat(t reflect.Type) string {
	if t.Kind() == reflect.String {
		return " of strings"
	}
	return ""
}
