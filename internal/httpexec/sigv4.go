package httpexec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unsafe"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/yett-broker/yett/internal/action"
)

// accessKey is the stored form 'ID:SECRET' or 'ID:SECRET:SESSION_TOKEN', taken
// apart. Neither ids nor secrets have colons.
type accessKey struct{ id, secret, session []byte }

func splitAccessKey(value []byte) (accessKey, error) {
	id, rest, ok := bytes.Cut(value, []byte(":"))
	secret, session, more := bytes.Cut(rest, []byte(":"))
	k := accessKey{id, secret, session}
	switch {
	case !ok:
		return k, errors.New("the stored credential has no colon: it is ACCESS_KEY_ID:SECRET_ACCESS_KEY")
	case len(id) < 3 || len(id) > 128 || bytes.ContainsAny(id, " /,="):
		return k, errors.New("the stored credential has no access key id before its first colon")
	case len(secret) < minSecret:
		return k, errors.New("the stored secret access key is too short")
	case more && len(session) < minSecret:
		return k, errors.New("the stored session token is too short")
	}
	return k, nil
}

// sign adds AWS Signature Version 4: the target, every header of the agent and
// the body's digest are signed. The secret never leaves; the signature is good
// for this one request, and an echo of it is scrubbed like a secret.
func (c Credential) sign(w *request, t Target, r action.HTTP, now time.Time) error {
	key, err := splitAccessKey(c.Secret)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(r.Body)
	payload := hex.EncodeToString(digest[:])
	in, err := c.signable(t, r)
	if err != nil {
		return err
	}
	if isS3(c.Service) {
		in.Header["X-Amz-Content-Sha256"] = []string{payload}
		w.text("X-Amz-Content-Sha256", payload)
	}
	// The signer wants strings: these share the lent bytes, and it is dropped
	// before they are wiped. It keeps derived keys, so each request has its own.
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = isS3(c.Service) })
	err = signer.SignHTTP(context.Background(), aws.Credentials{AccessKeyID: string(key.id), SecretAccessKey: lentString(key.secret), SessionToken: lentString(key.session)},
		in, payload, c.Service, c.Region, now.UTC())
	if err != nil { // its words may quote the request
		return errors.New("the request could not be signed")
	}
	w.text("X-Amz-Date", in.Header.Get("X-Amz-Date"))
	if len(key.session) > 0 {
		w.secret("X-Amz-Security-Token", "", key.session)
		w.echoes = append(w.echoes, key.session)
	}
	authorization := in.Header.Get("Authorization")
	at := strings.LastIndex(authorization, "Signature=")
	if at < 0 {
		return errors.New("the request could not be signed")
	}
	at += len("Signature=")
	signature := append(w.own(len(authorization)-at), authorization[at:]...)
	w.secret("Authorization", authorization[:at], signature)
	w.echoes = append(w.echoes, key.secret, signature)
	return nil
}

// signable is the request as the signer reads it. What it adds to it is copied
// from there; nothing of it is sent.
func (c Credential) signable(t Target, r action.HTTP) (*http.Request, error) {
	path, err := url.PathUnescape(r.Path)
	if err != nil {
		return nil, errors.New("the path is not in canonical form")
	}
	u := &url.URL{Scheme: t.Scheme, Host: t.authority(), Path: path, RawPath: r.Path, RawQuery: r.Query}
	if isS3(c.Service) {
		// S3 decodes what it received and encodes that in its one way.
		u.RawPath = strictPath(path)
	}
	in := &http.Request{Method: r.Method, URL: u, Host: u.Host, Header: http.Header{}}
	for _, h := range r.Headers {
		if !strings.EqualFold(h.Name, "Accept-Encoding") { // it is not sent as the agent wrote it
			in.Header[http.CanonicalHeaderKey(h.Name)] = []string{h.Value}
		}
	}
	return in, nil
}

// strictPath escapes all but '/' and the unreserved characters.
func strictPath(path string) string {
	var b []byte
	for i, segment := range strings.Split(path, "/") {
		if i > 0 {
			b = append(b, '/')
		}
		b = appendEscaped(b, []byte(segment))
	}
	return string(b)
}

// isS3 names the services whose paths are encoded once and whose requests name
// the digest of their body.
func isS3(service string) bool {
	switch service {
	case "s3", "s3-outposts", "s3-object-lambda", "s3express":
		return true
	}
	return false
}

// lentString is a string over bytes that are lent: it must not outlive the call.
func lentString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
