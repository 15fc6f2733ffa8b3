package standin

import (
	"encoding/json"
	"io"
	"net/http"
)

// anthropic is the Messages API.
var anthropic = api{read: readMessages, write: writeMessages}

func readMessages(_ *http.Request, body []byte) (turn, error) {
	var in struct {
		Model    string
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct{ Content json.RawMessage }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return turn{}, err
	}
	t := turn{model: in.Model, stream: in.Stream}
	for _, x := range in.Tools {
		t.tools = append(t.tools, tool{name: x.Name})
	}
	for _, m := range in.Messages {
		var blocks []struct {
			Type    string
			Content json.RawMessage
			IsError bool `json:"is_error"`
		}
		json.Unmarshal(m.Content, &blocks) // a string instead has no results in it
		for _, b := range blocks {
			if b.Type == "tool_result" {
				t.results = append(t.results, Result{Text: textOf(b.Content), Error: b.IsError})
			}
		}
	}
	return t, nil
}

func writeMessages(w http.ResponseWriter, t turn, r reply) {
	whole := map[string]any{"type": "text", "text": done}
	empty := map[string]any{"type": "text", "text": ""}
	delta := map[string]any{"type": "text_delta", "text": done}
	stop := "end_turn"
	if r.tool != nil {
		whole = map[string]any{"type": "tool_use", "id": "toolu_" + r.id, "name": r.tool.name, "input": r.arguments}
		empty = map[string]any{"type": "tool_use", "id": "toolu_" + r.id, "name": r.tool.name, "input": map[string]any{}}
		delta = map[string]any{"type": "input_json_delta", "partial_json": encode(r.arguments)}
		stop = "tool_use"
	}
	message := map[string]any{"id": "msg_standin", "type": "message", "role": "assistant", "model": t.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 1, "output_tokens": 1}}
	if !t.stream {
		message["content"], message["stop_reason"] = []any{whole}, stop
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, encode(message))
		return
	}
	send := events(w)
	send("message_start", map[string]any{"message": message})
	send("content_block_start", map[string]any{"index": 0, "content_block": empty})
	send("content_block_delta", map[string]any{"index": 0, "delta": delta})
	send("content_block_stop", map[string]any{"index": 0})
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 3}})
	send("message_stop", map[string]any{})
}
