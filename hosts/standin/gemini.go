package standin

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// gemini is the Gemini API: the method stands in the path, behind the model.
var gemini = api{read: readContents, write: writeContents}

func readContents(r *http.Request, body []byte) (turn, error) {
	var in struct {
		Tools    []struct{ FunctionDeclarations []struct{ Name string } }
		Contents []struct {
			Parts []struct {
				FunctionResponse *struct{ Response map[string]json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return turn{}, err
	}
	model, method, _ := strings.Cut(r.PathValue("action"), ":")
	t := turn{model: model, stream: strings.HasPrefix(method, "stream")}
	for _, x := range in.Tools {
		for _, f := range x.FunctionDeclarations {
			t.tools = append(t.tools, tool{name: f.Name})
		}
	}
	for _, c := range in.Contents {
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				t.results = append(t.results, responseOf(p.FunctionResponse.Response))
			}
		}
	}
	return t, nil
}

func responseOf(r map[string]json.RawMessage) Result {
	if bad, ok := r["error"]; ok {
		return Result{Text: textOf(bad), Error: true}
	}
	return Result{Text: textOf(r["output"])}
}

func writeContents(w http.ResponseWriter, t turn, r reply) {
	part := map[string]any{"text": done}
	if r.tool != nil {
		part = map[string]any{"functionCall": map[string]any{"name": r.tool.name, "args": r.arguments}}
	}
	answer := map[string]any{
		"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
	if t.stream {
		events(w)("", answer)
		return
	}
	answer["totalTokens"] = 5 // countTokens asks for this alone
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, encode(answer))
}
