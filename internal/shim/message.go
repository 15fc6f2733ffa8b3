package shim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/yett-broker/yett/internal/wire"
)

// Error codes of JSON-RPC (https://www.jsonrpc.org/specification) and the one
// that servers may define.
const (
	codeParse    = jsonrpc.CodeParseError
	codeInvalid  = jsonrpc.CodeInvalidRequest
	codeInternal = jsonrpc.CodeInternalError
	codeServer   = -32000
)

// refusal is an answer that the shim gives itself, before the message reaches
// the SDK.
type refusal struct {
	id       json.RawMessage // nil: answered with id null
	code     int
	message  string
	name     string // data.code
	nextStep string // data.next_step
}

// encode returns the reply without its newline.
func (r *refusal) encode() []byte {
	type data struct {
		Code     string `json:"code,omitempty"`
		NextStep string `json:"next_step,omitempty"`
	}
	type body struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    *data  `json:"data,omitempty"`
	}
	out := struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   body            `json:"error"`
	}{"2.0", r.id, body{Code: r.code, Message: r.message}}
	if r.id == nil {
		out.ID = json.RawMessage("null")
	}
	if r.name != "" || r.nextStep != "" {
		out.Error.Data = &data{r.name, r.nextStep}
	}
	b, err := json.Marshal(out)
	if err != nil { // strings and a checked id only: it cannot fail
		panic("shim: encoding a refusal: " + err.Error())
	}
	return b
}

func invalid(id json.RawMessage, format string, args ...any) *refusal {
	return &refusal{id: id, code: codeInvalid, message: fmt.Sprintf(format, args...)}
}

// message is one decoded message of the agent.
type message struct {
	id     json.RawMessage // nil for a notification
	method string          // empty for a response
	params json.RawMessage // an object, or nil
}

// strict are the limits of a message, an agent's arguments included.
var strict = wire.Limits{Depth: 64, Members: 1024}

// parse decodes a line. A response to a question that was never asked comes
// back as a message without a method.
func parse(line []byte) (message, *refusal) {
	rawID, ambiguous, fail := wire.CheckStrict(line, strict)
	id := usableID(rawID)
	switch {
	case fail != nil:
		return message{}, &refusal{code: codeParse, message: fail.Message}
	case ambiguous != nil:
		return message{}, invalid(id, "%s", ambiguous.Message)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return message{}, invalid(nil, "a message is one JSON object")
	}
	_, hasID := members["id"]
	_, hasResult := members["result"]
	_, hasError := members["error"]
	rawMethod, hasMethod := members["method"]
	m := message{params: members["params"]}
	switch {
	case hasID && id == nil:
		return message{}, invalid(nil, "id must be a string or an integer of at most 53 bits")
	case !bytes.Equal(members["jsonrpc"], []byte(`"2.0"`)):
		return message{}, invalid(id, `jsonrpc must be "2.0"`)
	case !hasMethod && (hasResult || hasError):
		return message{}, nil
	case !hasMethod:
		return message{}, invalid(id, "method is missing")
	case json.Unmarshal(rawMethod, &m.method) != nil || m.method == "":
		return message{}, invalid(id, "method must be a string")
	case bytes.Equal(m.params, []byte("null")):
		m.params = nil
	case m.params != nil && m.params[0] != '{':
		return message{}, invalid(id, "params must be an object")
	}
	if hasID {
		m.id = id
	}
	return m, nil
}

// usableID returns an id that a reply can carry, in the SDK's spelling: a
// string, or an integer that every JSON parser keeps exactly. Else it is nil.
func usableID(raw json.RawMessage) json.RawMessage {
	switch {
	case len(raw) == 0:
		return nil
	case raw[0] == '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return nil
		}
		b, err := json.Marshal(s)
		if err != nil {
			return nil
		}
		return b
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > 1<<53 || n < -1<<53 {
		return nil
	}
	return strconv.AppendInt(nil, n, 10)
}

// request returns the message as the SDK takes it.
func (m message) request() (*jsonrpc.Request, error) {
	req := &jsonrpc.Request{Method: m.method, Params: m.params}
	if m.id == nil {
		return req, nil
	}
	var id any
	if err := json.Unmarshal(m.id, &id); err != nil {
		return nil, err
	}
	var err error
	req.ID, err = jsonrpc.MakeID(id)
	return req, err
}
