package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

const kindsFile = `
[credential.jira]
kind   = "basic"
user   = "ädä@example.com"
origin = "https://jira.example"

[credential.maps]
kind      = "query"
parameter = "api_key"
origin    = "https://maps.example"

[credential.shop]
kind   = "cookie"
cookie = "session"
origin = "https://shop.example"

[credential.bucket]
kind    = "sigv4"
service = "s3"
region  = "eu-central-1"
origin  = "https://s3.eu-central-1.amazonaws.com"

[credential.crm]
kind           = "oauth2-client"
origin         = "https://crm.example"
token_endpoint = "https://id.example/oauth2/token"
client_id      = "yett"
scopes         = ["read", "write:notes"]
audience       = "https://crm.example/"
auth           = "post"

[credential.mail]
kind           = "oauth2-refresh"
origin         = "https://mail.example"
token_endpoint = "https://id.example/oauth2/token"
client_id      = "desktop"
client_secret  = "mail-client"

[credential.mail-client]
kind = "client-secret"

[credential.phone]
kind           = "oauth2-refresh"
origin         = "https://phone.example"
token_endpoint = "http://127.0.0.1:9000/token"
client_id      = "public"
`

func TestCredentialKinds(t *testing.T) {
	p, err := Parse([]byte(kindsFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]string{
		"jira": "https://jira.example:443", "maps": "https://maps.example:443", "bucket": "https://s3.eu-central-1.amazonaws.com:443",
		"crm":         "https://crm.example:443 token https://id.example:443/oauth2/token client yett",
		"mail-client": "token https://id.example:443/oauth2/token client desktop",
		"phone":       "https://phone.example:443 token http://127.0.0.1:9000/token client public",
	} {
		if c, _ := p.Credential(name); c.Place() != place {
			t.Errorf("%s goes to %q, want %q", name, c.Place(), place)
		}
	}
	for name, auth := range map[string]string{"crm": AuthPost, "mail": AuthBasic, "phone": AuthNone} {
		if c, _ := p.Credential(name); c.OAuth.Auth != auth {
			t.Errorf("%s proves itself by %q, want %q", name, c.OAuth.Auth, auth)
		}
	}
	diff := p.Diff(nil)
	for _, want := range []string{`user: "\u00e4d\u00e4@example.com"`, "parameter: api_key", "cookie: session", "service: s3", "region: eu-central-1",
		"token endpoint: https://id.example:443/oauth2/token", "client secret: mail-client", "scope: write:notes", "proves itself by: none"} {
		if !strings.Contains(diff, want) {
			t.Errorf("the difference does not say %q:\n%s", want, diff)
		}
	}
}

func TestCredentialKindProblems(t *testing.T) {
	for _, c := range []struct{ table, key, replacement, message string }{
		{"credential.jira", "user", `user = "a:b"`, "has a colon"},
		{"credential.jira", "user", `user = ""`, "must not be empty"},
		{"credential.jira", "user", "user = \"a\\u0085b\"", "control character"},
		{"credential.jira", "parameter", `parameter = "x"`, "unknown key"},
		{"credential.maps", "parameter", `parameter = "_method"`, "is not a parameter name"},
		{"credential.maps", "parameter", `parameter = "x-http-method-override"`, "would replace the method"},
		{"credential.maps", "parameter", `parameter = "a=b"`, "is not a parameter name"},
		{"credential.shop", "cookie", `cookie = "a; b"`, "is not the name of a cookie"},
		{"credential.bucket", "service", `service = "S3"`, "lower case"},
		{"credential.bucket", "region", `region = "a/b"`, "lower case"},
		{"credential.crm", "token_endpoint", `token_endpoint = "http://id.example/token"`, "plain http goes to loopback only"},
		{"credential.crm", "token_endpoint", `token_endpoint = "https://u:p@id.example/token"`, "an origin has no user"},
		{"credential.crm", "token_endpoint", `token_endpoint = "https://id.example/token?x=1"`, "parameters belong in query"},
		{"credential.crm", "token_endpoint", `token_endpoint = "https://id.example/a/../token"`, "dot segment"},
		{"credential.crm", "token_endpoint", `token_endpoint = "https://169.254.169.254/token"`, "metadata"},
		{"credential.crm", "client_id", `client_id = "a b"`, "visible ASCII"},
		{"credential.crm", "client_secret", `client_secret = "s3cr3t-value"`, "no secret stands in this file"},
		{"credential.crm", "auth", `auth = "none"`, "clients without a secret"},
		{"credential.crm", "auth", `auth = "jwt"`, "must be"},
		{"credential.crm", "scopes", `scopes = ["a b"]`, "is not a scope"},
		{"credential.mail", "client_secret", `client_secret = "jira"`, "not of kind client-secret"},
		{"credential.mail", "client_secret", `client_secret = "nobody"`, "there is no [credential.…]"},
		{"credential.mail-client", "origin", `origin = "https://a.example"`, "a client-secret has no origin"},
		{"credential.phone", "auth", `auth = "basic"`, "needs client_secret"},

		{"credential.jira", "ca", `ca = "-----BEGIN"`, "is not PEM text"},
		{"credential.jira", "ca", `ca = ""`, "has no certificate"},
		{"credential.jira", "pin", `pin = ["AAAA"]`, "is not the base64 of a SHA-256"},
		{"credential.jira", "pin", `pin = "AAAA"`, "array of strings"},
		{"credential.jira", "proxy", `proxy = "http://u:p@proxy.example:3128"`, "an origin has no user"},
		{"credential.jira", "proxy", `proxy = "socks5://proxy.example"`, "must be https or http"},
		{"credential.jira", "http2", `http2 = "no"`, "true or false"},
	} {
		file, line := editFile(t, kindsFile, c.table, c.key, c.replacement)
		_, err := Parse([]byte(file))
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("line %d, %s: %v; want …%s…", line, c.replacement, err, c.message)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t-value") {
			t.Errorf("a value is repeated: %v", err)
		}
	}
	// One secret for two clients has no single place; one that nobody names has none.
	two := kindsFile + strings.Replace(kindsFile[strings.Index(kindsFile, "[credential.mail]"):strings.Index(kindsFile, "[credential.mail-client]")],
		"credential.mail]", "credential.mail2]", 1)
	two = strings.Replace(two, "desktop", "other", 1)
	if _, err := Parse([]byte(two)); err == nil || !strings.Contains(err.Error(), "more than one client") {
		t.Errorf("one secret for two clients: %v", err)
	}
	if _, err := Parse([]byte(strings.Replace(kindsFile, `client_secret  = "mail-client"`, "", 1))); err == nil || !strings.Contains(err.Error(), "no credential names this client-secret") {
		t.Errorf("a secret without a client: %v", err)
	}
}

func TestTransport(t *testing.T) {
	ca := authority(t)
	file := strings.Replace(kindsFile, `origin = "https://jira.example"`, `origin = "https://jira.example"
ca     = """`+"\n"+ca+`"""
pin    = ["`+strings.Repeat("A", 42)+`A="]
proxy  = "http://proxy.example:3128"
http2  = false`, 1)
	p, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := p.Credential("jira")
	w := c.Transport
	if w.CA != ca || len(w.Pins) != 1 || w.Proxy.String() != "http://proxy.example:3128" || !w.HTTP1 {
		t.Errorf("the transport is %+v", w)
	}
	diff := p.Diff(nil)
	for _, want := range []string{"only authority: CN=yett test, SHA-256 ", "only key: AAAA", "proxy: http://proxy.example:3128", "http2: not offered"} {
		if !strings.Contains(diff, want) {
			t.Errorf("the difference does not say %q:\n%s", want, diff)
		}
	}
	if c, _ := p.Credential("maps"); c.Transport.HTTP1 || c.Transport.CA != "" {
		t.Errorf("the usual way is %+v", c.Transport)
	}
	key := strings.Replace(file, "-----END CERTIFICATE-----\n", "-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 1)
	if _, err := Parse([]byte(key)); err == nil || !strings.Contains(err.Error(), "certificates alone") {
		t.Errorf("a private key among the authorities: %v", err)
	}
}

func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "yett test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestH09_TokenEndpointIsTheBrokers: no capability leads to where values are
// exchanged, in whatever spelling a server may read it.
func TestH09_TokenEndpointIsTheBrokers(t *testing.T) {
	p, err := Parse([]byte(kindsFile + `
[credential.id]
kind   = "bearer"
origin = "https://id.example"

[capability."http:id"]
credential = "id"
methods    = ["GET", "POST"]
paths      = ["/**"]
confirm    = "each"
`))
	if err != nil {
		t.Fatal(err)
	}
	decide := func(path string) Decision {
		h, r := action.NewHTTP(action.HTTPInput{Method: "POST", Path: path})
		if r != nil {
			t.Fatalf("%s: %s", path, r.Detail)
		}
		return p.Decide(func(string) bool { return true }, action.Request{Capability: "http:id", HTTP: h})
	}
	for _, path := range []string{"/oauth2/token", "/oauth2/token/", "/OAuth2/Token", "/oauth2/%74oken",
		"/oauth2/token;x", "/oauth2/token;jsessionid=1/", "/oauth2;a=b/TOKEN", "/oauth2/token%3Bx", "/oauth2/token%20", "/oauth2/token.", "/oauth2/token%2E%20.",
		"/oauth2./token", "/oauth2%20/token..", "/oauth2/token%20;x", "/oauth2/%20token", "/oauth2/token\uff1bx", "/oauth2/token%EF%BC%8E", "/oauth2/to\u212aen"} {
		if d := decide(path); d.Allowed || !strings.Contains(d.Detail, "token endpoint") {
			t.Errorf("%s: %+v", path, d)
		}
	}
	for _, path := range []string{"/oauth2/tokens", "/oauth2/userinfo", "/oauth2/token.json", "/oauth2/token/x", "/oauth2/x;token"} {
		if d := decide(path); !d.Allowed {
			t.Errorf("%s: %+v", path, d)
		}
	}
}

// TestH10_OwnPlace: what stands where the credential does is outside of every
// capability, in whatever spelling; the same names are free elsewhere.
func TestH10_OwnPlace(t *testing.T) {
	file := kindsFile
	for _, name := range []string{"jira", "maps", "bucket", "crm"} {
		file += "\n[capability.\"http:" + name + "\"]\ncredential = \"" + name + "\"\nmethods = [\"GET\"]\npaths = [\"/**\"]\nconfirm = \"each\"\n"
	}
	p, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		capability string
		query      string
		header     string
		allowed    bool
	}{
		{"maps", "api_key", "", false},
		{"maps", "API-Key", "", false},
		{"maps", "api.key[]", "", false},
		{"maps", "api_\u212Aey", "", false},
		{"maps", "ａｐｉ＿ｋｅｙ", "", false},
		{"maps", "a%3Bapi_key", "", false},
		{"maps", "apikey", "", true},
		{"jira", "api_key", "", true},
		{"bucket", "X-Amz-Signature", "", false},
		{"bucket", "x_amz_credential", "", false},
		{"bucket", "", "x-amz-date", false},
		{"bucket", "", "X_Amz_Security_Token", false},
		{"bucket", "", "X-Amz-Content-SHA256", false},
		{"bucket", "list-type", "X-Amz-Acl", true},
		{"crm", "access_token", "", false},
		{"crm", "Access-Token", "", false},
		{"crm", "scope", "X-Amz-Date", true},
	} {
		in := action.HTTPInput{Method: "GET", Path: "/x"}
		if c.query != "" {
			in.Query = map[string][]string{c.query: {"mine"}}
		}
		if c.header != "" {
			in.Headers = map[string]string{c.header: "mine"}
		}
		h, r := action.NewHTTP(in)
		if r != nil {
			t.Fatalf("%+v: %s", c, r.Detail)
		}
		d := p.Decide(func(string) bool { return true }, action.Request{Capability: "http:" + c.capability, HTTP: h})
		if d.Allowed != c.allowed || !c.allowed && !strings.Contains(d.Detail, "belongs to the credential") {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}
