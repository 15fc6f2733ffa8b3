package console

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/yett-broker/yett/internal/wire"
)

// maxBody is the longest body of a request: an access value may be a key file.
const maxBody = 128 << 10

// policy is what a browser is told to refuse on every answer.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types yett"

func secured(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), publickey-credentials-get=(self), publickey-credentials-create=(self)")
}

// handler guards every request before anything else looks at it.
func (c *Console) handler() http.Handler {
	routes := c.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secured(w.Header())
		if status, why := c.judge(r); why != "" {
			c.Log.Debug("the console refused a request", "why", why)
			w.Header().Set("Connection", "close")
			http.Error(w, why, status)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		routes.ServeHTTP(w, r)
	})
}

// judge says why a request is refused, or nothing. Where a request comes from is
// the browser's word; who is at the other end is the kernel's.
func (c *Console) judge(r *http.Request) (status int, why string) {
	if r.Host != c.host {
		return http.StatusMisdirectedRequest, "This is not the console's name. Open " + c.origin + "/ instead."
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return http.StatusMethodNotAllowed, "There is no such method."
	}
	if why := c.foreign(r); why != "" {
		return http.StatusForbidden, why
	}
	v := visitOf(r)
	if v == nil {
		return http.StatusForbidden, "The connection is not known."
	}
	v.once.Do(func() { v.key, v.err = c.Broker.Visit(v.local, v.remote) })
	if v.err != nil {
		c.Log.Warn("the console refused a visitor", "cause", v.err)
		return http.StatusForbidden, "The console serves this account's own browser only, and neither agents nor what they start."
	}
	if !c.traffic.allow(v.key) {
		return http.StatusTooManyRequests, "Too many requests; wait a moment."
	}
	return 0, ""
}

// foreign says why a request does not come from the console's own page or from
// the person's own way to it. Another port of localhost is the same site to a
// browser, so that is refused as well.
func (c *Console) foreign(r *http.Request) string {
	const other = "The request comes from another page."
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
	case "none":
		if r.Method != http.MethodGet {
			return other
		}
	default:
		return other
	}
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "frame", "iframe", "embed", "object", "fencedframe":
		return "The console is not shown inside another page."
	}
	origin, given := r.Header["Origin"]
	if given && (len(origin) != 1 || origin[0] != c.origin) || !given && r.Method == http.MethodPost {
		return other
	}
	if r.Method == http.MethodPost {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return "The body must be JSON."
		}
	}
	return ""
}

// bearer is the token of a request, or "".
func bearer(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return token
}

// answer writes JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// refuse writes an error of the broker as it would stand on the socket.
func refuse(w http.ResponseWriter, fail *wire.Error) {
	status := http.StatusForbidden
	switch fail.Code {
	case wire.CodeBadRequest:
		status = http.StatusBadRequest
	case wire.CodeProofRequired:
		status = http.StatusUnauthorized
	case wire.CodeLocked:
		status = http.StatusLocked
	case wire.CodeBusy:
		status = http.StatusTooManyRequests
	case wire.CodeInternal:
		status = http.StatusInternalServerError
	}
	answer(w, status, map[string]any{"error": map[string]string{"code": fail.Code, "message": fail.Message, "next_step": fail.NextStep}})
}
