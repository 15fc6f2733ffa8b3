package access

import (
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
)

const headerFile = `[credential.a]
kind = "header"
header = "x-api-key"
origin = "https://a.example"
[capability."http:a"]
credential = "a"
methods = ["GET"]
paths = ["/v1"]
`

// TestHeaderIsTheCredentials: an agent may not set the header that carries the
// credential, however it is spelled, and may set every other one.
func TestHeaderIsTheCredentials(t *testing.T) {
	p := mustParse(t, headerFile)
	if c, _ := p.Credential("a"); c.Header != "X-Api-Key" || c.Prefix != "" || c.Place() != "https://a.example:443" {
		t.Fatalf("%+v", c)
	}
	for name, allowed := range map[string]bool{"X-Api-Key": false, "x-api-key": false, "X_API_KEY": false, "X.Api-Key": false, "X-Api-Keys": true, "X-Version": true} {
		h, refusal := action.NewHTTP(action.HTTPInput{Method: "GET", Path: "/v1", Headers: map[string]string{name: "mine"}})
		if refusal != nil {
			t.Fatal(refusal)
		}
		d := p.Decide(all, action.Request{Capability: "http:a", HTTP: h})
		if d.Allowed != allowed || !allowed && !strings.Contains(d.Detail, "belongs to the credential") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestHeaderProblems: a header that means something else carries no credential.
func TestHeaderProblems(t *testing.T) {
	for line, message := range map[string]string{
		`header = ""`:                                     "must not be empty",
		`header = "X Api Key"`:                            "not an HTTP token",
		`header = "X:Y"`:                                  "not an HTTP token",
		`header = "Host"`:                                 "carries no credential",
		`header = "x_forwarded_for"`:                      "carries no credential",
		`header = "Cookie"`:                               "carries no credential",
		`header = "Proxy-Authorization"`:                  "carries no credential",
		`header = "Content-Type"`:                         "carries no credential",
		`header = "User-Agent"`:                           "carries no credential",
		`# no header`:                                     "header is missing",
		"header = \"X-Key\"\nprefix = \"a\\r\\nHost: b\"": "visible ASCII",
		"header = \"X-Key\"\nprefix = \" a\"":             "visible ASCII",
		"header = \"X-Key\"\nprefix = \"" + strings.Repeat("a", 33) + `"`: "longer than 32",
	} {
		_, err := Parse([]byte(strings.Replace(headerFile, `header = "x-api-key"`, line, 1)))
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v, want %q", line, err, message)
		}
	}
	for _, line := range []string{`header = "Authorization"`, "header = \"Authorization\"\nprefix = \"Token token=\""} {
		mustParse(t, strings.Replace(headerFile, `header = "x-api-key"`, line, 1))
	}
	if _, err := Parse([]byte(strings.Replace(headerFile, `kind = "header"`, `kind = "bearer"`, 1))); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("a bearer token with a header of its own: %v", err)
	}
}

// TestHeaderStandsInTheDifference: where a value goes is shown before the proof.
func TestHeaderStandsInTheDifference(t *testing.T) {
	old := mustParse(t, headerFile)
	next := mustParse(t, strings.Replace(headerFile, "x-api-key\"", "authorization\"\nprefix = \"Token \"", 1))
	lines := strings.Split(next.Diff(old), "\n")
	for _, want := range []string{`    - header: X-Api-Key: "…"`, `    + header: Authorization: "Token …"`} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s in\n%s", want, next.Diff(old))
		}
	}
}
