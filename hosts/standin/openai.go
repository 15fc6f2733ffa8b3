package standin

import (
	"encoding/json"
	"net/http"
)

// openai is the Responses API, as a stream only.
var openai = api{read: readResponses, write: writeResponses}

func readResponses(_ *http.Request, body []byte) (turn, error) {
	var in struct {
		Model string
		Tools []struct {
			Type  string
			Name  string
			Tools []struct{ Name string } // of a namespace
		}
		Input json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return turn{}, err
	}
	t := turn{model: in.Model, stream: true}
	for _, x := range in.Tools {
		if x.Type != "namespace" {
			t.tools = append(t.tools, tool{name: x.Name})
		}
		for _, inner := range x.Tools {
			t.tools = append(t.tools, tool{namespace: x.Name, name: inner.Name})
		}
	}
	var items []struct {
		Type   string
		Output json.RawMessage
	}
	json.Unmarshal(in.Input, &items) // a string instead has no results in it
	for _, i := range items {
		if i.Type == "function_call_output" {
			t.results = append(t.results, Result{Text: textOf(i.Output)})
		}
	}
	return t, nil
}

func writeResponses(w http.ResponseWriter, _ turn, r reply) {
	item := map[string]any{"type": "message", "role": "assistant", "id": "m1", "content": []any{map[string]any{"type": "output_text", "text": done}}}
	if r.tool != nil {
		item = map[string]any{"type": "function_call", "name": r.tool.name, "arguments": encode(r.arguments), "call_id": r.id}
		if r.tool.namespace != "" {
			item["namespace"] = r.tool.namespace
		}
	}
	send := events(w)
	send("response.created", map[string]any{"response": map[string]any{"id": "r1"}})
	send("response.output_item.done", map[string]any{"item": item})
	send("response.completed", map[string]any{"response": map[string]any{"id": "r1", "usage": map[string]any{
		"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}}})
}
