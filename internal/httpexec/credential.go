package httpexec

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/action"
)

// Kinds of credentials. What is minted at a token endpoint is sent as bearer.
const (
	KindBearer = "bearer"
	KindHeader = "header"
	KindBasic  = "basic"
	KindQuery  = "query"
	KindCookie = "cookie"
	KindSigV4  = "sigv4"
)

// Credential is what is put into the request, and where. Secret is lent: it is
// not kept, and not changed.
type Credential struct {
	Kind      string
	Header    string // header: the header that carries the value
	Prefix    string // header: what stands before it there
	User      string // basic: the user, if Secret is the password alone
	Parameter string // query: the parameter's name
	Cookie    string // cookie: its name
	Service   string // sigv4
	Region    string // sigv4
	Secret    []byte
}

// minSecret is the shortest credential whose echoes can be told from chance.
const minSecret = 8

var (
	errShort    = errors.New("the stored credential is too short")
	errNotASCII = errors.New("the stored credential has a line break, control character or character beyond ASCII in it")
	errSpaces   = errors.New("the stored credential begins or ends with a space")
)

// Check says why a value could never be sent. The text must not say what
// stands in it.
func (c Credential) Check() error {
	switch {
	case c.Kind == KindHeader && (!isToken(c.Header) || !isPrefix(c.Prefix)):
		return errors.New("the header of the credential is not one that is sent")
	case c.Kind == KindQuery && (c.Parameter == "" || !isTarget(c.Parameter)):
		return errors.New("the parameter of the credential is not one that is sent")
	case c.Kind == KindCookie && !isToken(c.Cookie):
		return errors.New("the cookie of the credential is not one that is sent")
	}
	if len(c.Secret) < minSecret {
		return errShort
	}
	switch c.Kind {
	case KindBasic:
		return c.checkBasic()
	case KindSigV4:
		if err := checkVisible(c.Secret); err != nil {
			return err
		}
		_, err := splitAccessKey(c.Secret)
		return err
	case KindCookie:
		for _, b := range c.Secret {
			if b <= ' ' || b >= 0x7f || strings.IndexByte(`",;\`, b) >= 0 {
				return errors.New("the stored credential has a character in it that no cookie has")
			}
		}
		return nil
	case KindBearer, KindHeader, KindQuery:
		return checkVisible(c.Secret)
	}
	return errors.New("the kind of the credential is not known here")
}

// checkVisible refuses a value that a header cannot carry unchanged: a line
// break would end the header.
func checkVisible(secret []byte) error {
	for _, b := range secret {
		if b < 0x20 || b >= 0x7f { // no token has these: they come with copy and paste
			return errNotASCII
		}
	}
	if secret[0] == ' ' || secret[len(secret)-1] == ' ' {
		return errSpaces
	}
	return nil
}

// checkBasic: RFC 7617 forbids control characters, and a colon in the user.
func (c Credential) checkBasic() error {
	user, password := c.basic()
	switch {
	case user == nil:
		return errors.New("the stored credential has no colon: it is user:password, unless the access file names the user")
	case !utf8.Valid(c.Secret) || bytes.ContainsFunc(c.Secret, unicode.IsControl) || bytes.HasPrefix(c.Secret, []byte("\ufeff")):
		return errors.New("the stored credential has a line break or control character in it, or is not UTF-8")
	case bytes.IndexByte(user, ':') >= 0:
		return errors.New("the user has a colon in it")
	case len(password) < minSecret && (c.User != "" || len(user) < minSecret || len(password) > 1 && !isFiller(password)):
		return errors.New("the stored password is too short")
	}
	return nil
}

// isFiller names what services tell people to write in the place of a password
// where the user is the secret: Toggl, GitHub and others.
func isFiller(password []byte) bool {
	switch string(password) {
	case "api_token", "x-oauth-basic", "token", "none":
		return true
	}
	return false
}

// basic returns the two halves; user is nil if there is no colon.
func (c Credential) basic() (user, password []byte) {
	if c.User != "" {
		return []byte(c.User), c.Secret
	}
	user, password, ok := bytes.Cut(c.Secret, []byte(":"))
	if !ok {
		return nil, nil
	}
	return user, password
}

// owns reports whether a header of an agent would stand in the place of the
// credential, in whatever spelling.
func (c Credential) owns(header string) bool {
	switch c.Kind {
	case KindHeader:
		return action.FoldHeader(header) == action.FoldHeader(c.Header)
	case KindCookie:
		return action.FoldHeader(header) == "cookie"
	case KindSigV4:
		return action.IsSigningHeader(header)
	}
	return false // Authorization is nobody's but the credential's
}

// ownsParameter reports the same of a query parameter.
func (c Credential) ownsParameter(name string) bool {
	switch c.Kind {
	case KindQuery:
		return action.SameParameter(name, c.Parameter)
	case KindSigV4:
		return action.IsSigningParameter(name)
	}
	return false
}

// place puts the credential into w.
func (c Credential) place(w *request, t Target, r action.HTTP, now time.Time) error {
	switch c.Kind {
	case KindBearer:
		w.secret("Authorization", "Bearer ", c.Secret)
	case KindHeader:
		w.secret(c.Header, c.Prefix, c.Secret)
	case KindCookie:
		w.secret("Cookie", c.Cookie+"=", c.Secret)
	case KindBasic:
		c.placeBasic(w)
		return nil
	case KindQuery:
		w.parameter(c.Parameter, c.Secret)
	case KindSigV4:
		return c.sign(w, t, r, now)
	}
	w.echoes = append(w.echoes, c.Secret)
	return nil
}

func (c Credential) placeBasic(w *request) {
	user, password := c.basic()
	whole := w.own(len(user) + 1 + len(password))
	whole = append(append(append(whole, user...), ':'), password...)
	encoded := w.own(base64.StdEncoding.EncodedLen(len(whole)))[:base64.StdEncoding.EncodedLen(len(whole))]
	base64.StdEncoding.Encode(encoded, whole)
	w.secret("Authorization", "Basic ", encoded)
	w.echoes = append(w.echoes, whole)
	if len(password) >= minSecret {
		w.echoes = append(w.echoes, password)
	} else { // then the user is the secret
		w.echoes = append(w.echoes, user)
	}
}
