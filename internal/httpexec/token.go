package httpexec

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// tokenNames are the members of RFC 6749 and OpenID Connect that hold a
// credential.
var tokenNames = []string{"access_token", "refresh_token", "id_token"}

// handsOutToken reports whether a body is the reply of a token endpoint, in
// JSON or as a form: what it holds would be a credential in the agent's hands.
// It knows the standard's names at the top and nothing else: which paths may be
// called is for the access rules to say.
func handsOutToken(content string, body []byte) bool {
	body = bytes.TrimSpace(body)
	if !bytes.Contains(body, []byte("_token")) {
		return false
	}
	if body[0] == '{' {
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) != nil {
			return false
		}
		for name, value := range members {
			if isTokenName(name) && len(value) > 2 && value[0] == '"' {
				return true
			}
		}
		return false
	}
	// Some reply with a form, and call it text.
	if !strings.Contains(content, "form") && !strings.HasPrefix(content, "text/plain") || bytes.ContainsAny(body, " \n<") {
		return false
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return false
	}
	for name, values := range form {
		if isTokenName(name) && strings.Join(values, "") != "" {
			return true
		}
	}
	return false
}

func isTokenName(name string) bool {
	for _, n := range tokenNames {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}
