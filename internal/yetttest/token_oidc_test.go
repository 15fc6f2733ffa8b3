package yetttest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// oidcServer is the authorization server oidc-provider, and an API behind it.
type oidcServer struct {
	TokenEndpoint string `json:"token_endpoint"`
	API           string `json:"api"`
	RefreshToken  string `json:"refresh_token"`
	ClientSecret  string `json:"client_secret"`
}

func startOIDC(t *testing.T) *oidcServer {
	t.Helper()
	needNode(t)
	c := exec.Command("node", filepath.Join(nodeDir(), "oidc.mjs"))
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	log := &buffer{}
	c.Stderr = log
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		in.Close() // its end
		c.Wait()
		if t.Failed() {
			t.Logf("the authorization server said:\n%s", log)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the authorization server did not start: %v\n%s", err, log)
	}
	s := &oidcServer{}
	must(t, json.Unmarshal(line, s))
	return s
}

// TestH16_OIDCProvider: the same with an authorization server that nobody here
// wrote: 20 actions at once, a restart and 20 again, and a value
// that was used elsewhere, which it takes for theft.
func TestH16_OIDCProvider(t *testing.T) {
	s := startOIDC(t)
	file := fmt.Sprintf(`
[credential.mail]
kind           = "oauth2-refresh"
origin         = %[1]q
token_endpoint = %[2]q
client_id      = "mail"
client_secret  = "mail-client"

[credential.mail-client]
kind = "client-secret"

[credential.crm]
kind           = "oauth2-client"
origin         = %[1]q
token_endpoint = %[2]q
client_id      = "crm"
auth           = "post"
scopes         = ["read"]

[capability."http:mail"]
credential = "mail"
methods    = ["GET"]
paths      = ["/mail/**"]

[capability."http:crm"]
credential = "crm"
methods    = ["GET"]
paths      = ["/crm/**"]
`, s.API, s.TokenEndpoint)
	b := Start(t, file, "mail", s.RefreshToken, "mail-client", s.ClientSecret, "crm", s.ClientSecret)
	c := b.Granted("http:mail", "http:crm")
	many := func() {
		t.Helper()
		for _, op := range c.actMany(20, "http:mail", get("/mail/a")) {
			if op.status(t) != 200 {
				t.Fatalf("one of 20: %s", op.Result)
			}
		}
	}
	many()
	if op := c.MustAct("http:crm", get("/crm/a")); op.status(t) != 200 {
		t.Errorf("client credentials: %s", op.Result)
	}
	b.Restart()
	c = b.Granted("http:mail")
	many()

	// The first refresh token is the provider's proof of theft by now.
	b.RunWith(s.RefreshToken+"\n", Passphrase, "secret", "rotate", "mail")
	said := c.MustAct("http:mail", get("/mail/c")).notSent(t)
	if !strings.Contains(said.Error, "invalid_grant") || !strings.Contains(said.NextStep, "yett secret rotate mail") {
		t.Errorf("a token that was used before: %+v", said)
	}
}
