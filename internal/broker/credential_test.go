package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/access"
)

const mintedAccess = `
[credential.crm]
kind           = "oauth2-client"
origin         = "https://crm.example"
token_endpoint = "https://id.example/token"
client_id      = "yett"
scopes         = ["read"]

[credential.other]
kind   = "bearer"
origin = "https://other.example"

[capability."http:crm"]
credential = "crm"
methods    = ["GET"]
paths      = ["/v1/**"]

[capability."http:other"]
credential = "other"
methods    = ["GET"]
paths      = ["/v1/**"]
`

func parsed(t *testing.T, file string) *access.Policy {
	t.Helper()
	p, err := access.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChangedCredentialTakesGrantsBack: a grant is over what its credential was
// declared as when it was made.
func TestChangedCredentialTakesGrantsBack(t *testing.T) {
	old := parsed(t, mintedAccess)
	if changed := changedCapabilities(old, parsed(t, mintedAccess)); len(changed) != 0 {
		t.Errorf("nothing changed, and %v is taken back", changed)
	}
	for _, edit := range [][2]string{
		{`scopes         = ["read"]`, `scopes         = ["admin"]`},
		{`scopes         = ["read"]`, `proxy          = "http://proxy.example:3128"`},
		{`id.example/token`, `id.example/token2`},
		{`client_id      = "yett"`, `client_id      = "other"`},
	} {
		next := parsed(t, strings.Replace(mintedAccess, edit[0], edit[1], 1))
		if changed := changedCapabilities(old, next); !slices.Equal(changed, []string{"http:crm"}) {
			t.Errorf("%s: %v is taken back", edit[1], changed)
		}
	}
}

// TestCheckValue: each kind says what its value must be, before one is stored,
// and never repeats it.
func TestCheckValue(t *testing.T) {
	for _, c := range []struct{ kind, value, want string }{
		{access.KindBearer, "tök-0123456789", "beyond ASCII"},
		{access.KindBasic, "ada:pässwörd", ""},
		{access.KindBasic, "pässwörd", "no colon"},
		{access.KindSigV4, "AKIDEXAMPLE", "no colon"},
		{access.KindSigV4, "AKIDEXAMPLE:wJalrXUtnFEMI", ""},
		{access.KindOAuthRefresh, "1//0refresh", ""},
		{access.KindOAuthRefresh, "refrésh-token", "beyond ASCII"},
		{access.KindClientSecret, "a secret~with space", ""},
		{access.KindSSHKey, "no key at all", "key"},
	} {
		err := checkValue(access.Credential{Kind: c.kind}, []byte(c.value))
		if said := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(said, c.want) || strings.Contains(said, c.value) {
			t.Errorf("%s %q: %v; want …%s…", c.kind, c.value, err, c.want)
		}
		if valueForm(c.kind) == "" {
			t.Errorf("%s: nothing says what to give", c.kind)
		}
	}
}
