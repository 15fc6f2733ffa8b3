package httpexec

import (
	"bytes"
	"net/url"
	"strings"
)

// tokenNames are the members of RFC 6749, of OpenID Connect and of the temporary
// keys of AWS that hold a credential, as foldName spells them: accessToken is
// access_token.
var tokenNames = []string{"accesstoken", "refreshtoken", "idtoken", "sessiontoken", "secretaccesskey"}

// handsOutToken reports whether the beginning of a body has a token in it, as a
// member of JSON or an element of XML at any depth, or in a form: it would be a credential in the
// agent's hands. all says that the beginning is everything. It knows these names
// and nothing else: which paths may be called is for the access rules to say.
func handsOutToken(content string, body []byte, all bool) bool {
	content = strings.ToLower(content)
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return false
	}
	if body[0] == '{' || body[0] == '[' || strings.Contains(content, "json") {
		return hasTokenMember(body, all)
	}
	if body[0] == '<' {
		return hasTokenElement(body, all)
	}
	// Some reply with a form, and call it text.
	if !all || !strings.Contains(content, "form") && !strings.HasPrefix(content, "text/plain") || bytes.ContainsAny(body, " \n<") {
		return false
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return false
	}
	for name, values := range form {
		if isTokenName([]byte(name)) && strings.Join(values, "") != "" {
			return true
		}
	}
	return false
}

// hasTokenMember looks for a member with a text as its value. It copies nothing,
// since echoes are not replaced yet, and asks of the JSON no more than that its
// strings end.
func hasTokenMember(body []byte, all bool) bool {
	for {
		open := bytes.IndexByte(body, '"')
		if open < 0 {
			return false
		}
		body = body[open+1:]
		n := stringEnd(body)
		if n == len(body) {
			return false
		}
		name := body[:n]
		body = body[n+1:]
		rest, named := bytes.CutPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte(":"))
		if !named || !isTokenName(name) {
			continue
		}
		rest = bytes.TrimLeft(rest, " \t\r\n")
		switch {
		case len(rest) < 2:
			return !all // the value is in what was not looked at
		case rest[0] == '"' && rest[1] != '"':
			return true
		}
	}
}

// hasTokenElement looks for an element with a text in it. An element of HTML has
// none of these names.
func hasTokenElement(body []byte, all bool) bool {
	for {
		_, rest, more := bytes.Cut(body, []byte("<"))
		if !more {
			return false
		}
		tag, inside, ends := bytes.Cut(rest, []byte(">"))
		if !ends {
			return false
		}
		tag = tag[bytes.LastIndexByte(tag, '<')+1:] // a text may have one that begins no element
		name, _, _ := bytes.Cut(tag, []byte(" "))
		if at := bytes.IndexByte(name, ':'); at >= 0 { // of a namespace
			name = name[at+1:]
		}
		inside = bytes.TrimLeft(inside, " \t\r\n")
		switch {
		case !isTokenName(name) || bytes.HasSuffix(tag, []byte("/")):
		case len(inside) == 0:
			return !all // the value is in what was not looked at
		case inside[0] != '<' || bytes.HasPrefix(inside, []byte("<![CDATA[")):
			return true
		}
		body = inside
	}
}

// stringEnd is where the string of JSON ends whose inside b begins with.
func stringEnd(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(b)
}

func isTokenName(name []byte) bool {
	var room [16]byte
	folded := foldName(room[:0], name)
	for _, n := range tokenNames {
		if string(folded) == n {
			return true
		}
	}
	return false
}

// foldName appends a name to b, without case, escapes, hyphens and underscores,
// as far as there is room.
func foldName(b, name []byte) []byte {
	for i := 0; i < len(name) && len(b) < cap(b); {
		c, width := name[i], 1
		if c == '\\' {
			var ok bool
			if c, width, ok = decodeBackslash(name[i:], 1); !ok {
				return b[:0]
			}
		}
		if i += width; c != '_' && c != '-' {
			b = append(b, lower(c))
		}
	}
	return b
}
