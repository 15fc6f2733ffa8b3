package httpexec

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// How a client proves itself to a token endpoint.
const (
	AuthBasic = "basic"
	AuthPost  = "post"
	AuthNone  = "none"
)

// MintRequest is one exchange at a token endpoint: RFC 6749 section 6 if there
// is a refresh token, else section 4.4. Secrets are lent.
type MintRequest struct {
	Path         string
	ClientID     string
	ClientSecret []byte
	Auth         string
	RefreshToken []byte
	Scopes       []string
	Audience     string
}

// Minted is what came back. The caller wipes it.
type Minted struct {
	Access  []byte
	Refresh []byte        // a new refresh token, in the place of the one that was sent; may be nil
	Lives   time.Duration // 0: not said
}

// Wipe clears both tokens.
func (m *Minted) Wipe() {
	clear(m.Access)
	clear(m.Refresh)
}

// MintError is a refusal by the token endpoint. Code is one of the error codes
// that standards have, or empty: what else such an answer says may hold what
// was sent.
type MintError struct {
	Status int
	Code   string
}

func (e *MintError) Error() string {
	if e.Code == "" {
		return "the token endpoint answered with status " + strconv.Itoa(e.Status)
	}
	return fmt.Sprintf("the token endpoint answered with status %d and %s", e.Status, e.Code)
}

// mintCodes are those of RFC 6749, RFC 8707 and RFC 9470, and GitHub's own.
var mintCodes = map[string]bool{
	"invalid_request": true, "invalid_client": true, "invalid_grant": true, "unauthorized_client": true,
	"unsupported_grant_type": true, "invalid_scope": true, "invalid_target": true, "access_denied": true,
	"server_error": true, "temporarily_unavailable": true, "slow_down": true,
	"bad_refresh_token": true, "incorrect_client_credentials": true,
}

const (
	mintTimeout   = 30 * time.Second
	maxMintAnswer = 64 << 10
)

// CheckMintable says why a value can be no client's secret and no refresh
// token: RFC 6749 appendix A has visible ASCII and spaces.
func CheckMintable(value []byte) error {
	if len(value) < minSecret {
		return errShort
	}
	return checkVisible(value)
}

// Mint exchanges what it is lent for an access token, with one request on a
// connection of its own. An error is an *Error or a *MintError; after either
// but a refusal the exchange may have happened if the *Error says so.
func (e *Executor) Mint(ctx context.Context, t Target, q MintRequest) (*Minted, error) {
	if t.Timeout == 0 {
		t.Timeout = mintTimeout
	}
	t, err := t.normal()
	if err != nil {
		return nil, err
	}
	t.deadline = time.Now().Add(t.Timeout)
	t.Way.HTTP1 = true // one small exchange; its answer is read by its own rules
	w := q.compose()
	defer w.wipe()
	cn, err := e.connect(ctx, t, poolKey{})
	if err != nil {
		return nil, err
	}
	defer cn.abort()
	stop := context.AfterFunc(ctx, cn.abort)
	defer stop()
	if err := ctx.Err(); err != nil {
		return nil, notSent(plain(err))
	}
	if err := t.Begin(); err != nil {
		return nil, notSent(plain(err))
	}
	out := cn.send(t, w)
	defer out.wait()
	if out.failed() {
		return nil, notSent(plain(out.err))
	}
	return cn.readMinted(t)
}

// readMinted reads the answer of a token endpoint.
func (cn *conn) readMinted(t Target) (*Minted, error) {
	resp, err := cn.awaitHead(t, "POST")
	if err != nil {
		return nil, maybeSent(err)
	}
	text := make([]byte, maxMintAnswer+1)
	defer clear(text)
	n, err := io.ReadFull(resp.Body, text)
	if err == nil {
		return nil, maybeSent(errors.New("the answer of the token endpoint is too long"))
	}
	var reply mintReply
	defer reply.wipe()
	known := json.Unmarshal(text[:n], &reply) == nil
	switch {
	case known && reply.Error != "":
		refusal := &MintError{Status: resp.StatusCode}
		if mintCodes[reply.Error] {
			refusal.Code = reply.Error
		}
		return nil, refusal
	case resp.StatusCode != 200:
		return nil, &MintError{Status: resp.StatusCode}
	case !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF:
		return nil, maybeSent(plain(err))
	case !known || len(reply.Access) == 0:
		return nil, maybeSent(errors.New("the answer of the token endpoint has no access token in JSON"))
	case reply.Type != "" && !strings.EqualFold(reply.Type, "bearer"):
		return nil, maybeSent(errors.New("the token endpoint gave a token that is no bearer token"))
	case len(reply.Refresh) > 0 && CheckMintable(reply.Refresh) != nil, CheckMintable(reply.Access) != nil:
		return nil, maybeSent(errors.New("the token endpoint gave a token that cannot be sent"))
	}
	m := &Minted{Access: bytes.Clone(reply.Access), Lives: reply.lives()}
	if len(reply.Refresh) > 0 {
		m.Refresh = bytes.Clone(reply.Refresh)
	}
	return m, nil
}

type mintReply struct {
	Access  secretText `json:"access_token"`
	Refresh secretText `json:"refresh_token"`
	Type    string     `json:"token_type"`
	Expires any        `json:"expires_in"`
	Error   string     `json:"error"`
}

func (r *mintReply) wipe() {
	clear(r.Access)
	clear(r.Refresh)
}

// lives reads a number, or a number in a string, as some servers write it.
func (r *mintReply) lives() time.Duration {
	const most = 366 * 24 * 3600
	var seconds float64
	switch v := r.Expires.(type) {
	case float64:
		seconds = v
	case string:
		seconds, _ = strconv.ParseFloat(v, 64)
	}
	return time.Duration(max(0, min(seconds, most))) * time.Second
}

// secretText is a JSON string that can be wiped.
type secretText []byte

func (s *secretText) UnmarshalJSON(b []byte) error {
	switch {
	case bytes.Equal(b, []byte("null")):
		return nil
	case len(b) < 2 || b[0] != '"':
		return errors.New("not a string")
	case bytes.IndexByte(b, '\\') < 0:
		*s = bytes.Clone(b[1 : len(b)-1])
		return nil
	}
	var text string // tokens are written without escapes, but need not be
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	*s = []byte(text)
	return nil
}

// compose makes the request. Its body holds secrets too.
func (q MintRequest) compose() *request {
	w := &request{method: "POST"}
	w.target = append(w.own(len(q.Path)), q.Path...)
	w.body = w.own(256 + 3*(len(q.ClientID)+len(q.ClientSecret)+len(q.RefreshToken)+len(q.Audience)+len(strings.Join(q.Scopes, " "))))
	add := func(name string, value []byte) {
		if len(value) == 0 {
			return
		}
		if len(w.body) > 0 {
			w.body = append(w.body, '&')
		}
		w.body = append(append(w.body, name...), '=')
		w.body = appendEscaped(w.body, value)
	}
	if len(q.RefreshToken) > 0 {
		add("grant_type", []byte("refresh_token"))
		add("refresh_token", q.RefreshToken)
	} else {
		add("grant_type", []byte("client_credentials"))
	}
	add("scope", []byte(strings.Join(q.Scopes, " ")))
	add("audience", []byte(q.Audience))
	w.text("User-Agent", "yett")
	w.text("Accept", "application/json")
	w.text("Accept-Encoding", "identity")
	w.text("Content-Type", "application/x-www-form-urlencoded")
	if q.Auth == AuthBasic { // both halves are escaped first: RFC 6749 section 2.3.1
		pair := w.own(3*(len(q.ClientID)+len(q.ClientSecret)) + 1)
		pair = append(appendEscaped(pair, []byte(q.ClientID)), ':')
		pair = appendEscaped(pair, q.ClientSecret)
		size := base64.StdEncoding.EncodedLen(len(pair))
		encoded := w.own(size)[:size]
		base64.StdEncoding.Encode(encoded, pair)
		w.secret("Authorization", "Basic ", encoded)
	} else {
		add("client_id", []byte(q.ClientID))
		if q.Auth == AuthPost {
			add("client_secret", q.ClientSecret)
		}
	}
	w.text("Content-Length", strconv.Itoa(len(w.body)))
	return w
}
