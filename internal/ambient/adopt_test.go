package ambient

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/yett-broker/yett/internal/wire"
	"github.com/yett-broker/yett/internal/yetttest"
)

// login gives the commands a home of their own, and a project to stand in.
func login(t *testing.T, b *yetttest.Broker, variables ...string) (home, project string) {
	t.Helper()
	home, project = t.TempDir(), t.TempDir()
	b.Env = append([]string{"HOME=" + home}, variables...)
	t.Chdir(project)
	return home, project
}

// TestA5_AdoptListsAndShowsNoValue: everything that is planted is in the list
// of the command; no byte that it prints is of a value.
func TestA5_AdoptListsAndShowsNoValue(t *testing.T) {
	b := yetttest.New(t)
	home, project := login(t, b, "GITHUB_TOKEN="+canary, "SSH_AUTH_SOCK=/nowhere")
	want := map[string]bool{"env:GITHUB_TOKEN": true, "dotenv:STRIPE_SECRET_KEY": true}
	for pattern, s := range samples {
		plant(t, home, pattern, s.text)
		for _, name := range s.names {
			want[name] = true
		}
	}
	must(t, os.WriteFile(filepath.Join(project, ".env"), []byte("STRIPE_SECRET_KEY="+canary+"\n"), 0o644))
	r := b.RunPlain("adopt", "--json")
	var out struct {
		Found  []struct{ Name, Path, Kind, Readers string }
		Unread []string
	}
	r.JSON(t, &out)
	got := map[string]bool{}
	for _, f := range out.Found {
		got[f.Name] = true
		if f.Kind == "" || f.Readers == "" {
			t.Errorf("%+v", f)
		}
	}
	for name := range want {
		if !got[name] {
			t.Errorf("%s is not listed", name)
		}
	}
	if r.Code != 0 || len(out.Unread) != 1 {
		t.Errorf("exit %d, not read: %v", r.Code, out.Unread)
	}
	text := b.RunPlain("adopt")
	if text.Code != 0 || !strings.Contains(text.Stdout, fmt.Sprintf("%d credentials that agents of this login can use", len(out.Found))) {
		t.Errorf("exit %d: %s", text.Code, text.Stdout)
	}
	if bytes.Contains(b.Printed(), []byte(canary)) {
		t.Error("a value was printed")
	}
}

// TestA5_AdoptMovesAToken: the value goes to the broker, works there, and is
// gone from where it lay; the rest of the file stays.
func TestA5_AdoptMovesAToken(t *testing.T) {
	up := yetttest.StartUpstream(t, canary)
	b := yetttest.Start(t, "")
	_, project := login(t, b)
	file := filepath.Join(project, ".env")
	must(t, os.WriteFile(file, []byte("PORT=80\nDEMO_TOKEN="+canary+"\n# end\n"), 0o600))

	if r := b.Run("adopt", "dotenv:DEMO_TOKEN"); r.Code != 1 || !strings.Contains(r.Stderr, "--origin") {
		t.Errorf("without a place: exit %d %s", r.Code, r.Stderr)
	}
	place := []string{"adopt", "dotenv:DEMO_TOKEN", "--origin", up.URL, "--path", "/v1/**", "--as", "demo"}
	if r := b.RunPlain(place...); r.Code != 3 || !strings.Contains(r.Stderr, "proof") && !strings.Contains(r.Stderr, "passphrase") {
		t.Errorf("without a proof: exit %d %s", r.Code, r.Stderr)
	}
	if text, _ := os.ReadFile(file); !bytes.Contains(text, []byte(canary)) {
		t.Fatal("it was taken away without a proof")
	}
	r := b.Must(append(place, "--remove")...)
	for _, want := range []string{"+ credential.demo", "place: " + up.URL, "demo has its value", "taken away from", "secret rotate --home " + b.Home + " demo", "None is left"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("%q is not said:\n%s", want, r.Stdout)
		}
	}
	if text, _ := os.ReadFile(file); string(text) != "PORT=80\n# end\n" {
		t.Errorf("left: %q", text)
	}
	c := b.Granted("http:demo.read")
	op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
	var res wire.HTTPResult
	must(t, json.Unmarshal(op.Result, &res))
	if res.Status != 200 {
		t.Errorf("the moved token was refused: %d", res.Status)
	}
	if bytes.Contains(b.Printed(), []byte(canary)) {
		t.Error("the value was printed")
	}
	must(t, filepath.WalkDir(b.Home, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(canary)) {
				t.Errorf("the value lies in %s", path)
			}
		}
		return err
	}))
}

// TestA5_AdoptGoesOn: a run that ended before the value was taken away is
// finished by another; a credential that has another value keeps it, and the
// open copy stays.
func TestA5_AdoptGoesOn(t *testing.T) {
	b := yetttest.Start(t, "")
	_, project := login(t, b)
	file := filepath.Join(project, ".env")
	must(t, os.WriteFile(file, []byte("DEMO_TOKEN="+canary+"\n"), 0o600))
	adopt := []string{"adopt", "dotenv:DEMO_TOKEN", "--origin", "https://api.example.com", "--path", "/v1/**", "--as", "demo"}
	b.Must(append(adopt, "--keep")...)

	must(t, os.WriteFile(file, []byte("DEMO_TOKEN="+canary+"-another\n"), 0o600))
	r := b.Run(append(adopt, "--remove")...)
	if text, _ := os.ReadFile(file); r.Code != 1 || !strings.Contains(r.Stderr, "another value already") || !strings.Contains(r.Stderr, "secret rotate --home "+b.Home+" demo") || !bytes.Contains(text, []byte("another")) {
		t.Errorf("another value: exit %d %s, and %q is left", r.Code, r.Stderr, text)
	}

	must(t, os.WriteFile(file, []byte("DEMO_TOKEN="+canary+"\n"), 0o600))
	r = b.Must(append(adopt, "--remove")...)
	if text, _ := os.ReadFile(file); bytes.Contains(text, []byte("DEMO_TOKEN")) || strings.Contains(r.Stdout, "becomes") || !strings.Contains(r.Stdout, "this very value already") {
		t.Errorf("%q is left after\n%s", text, r.Stdout)
	}
	if bytes.Contains(b.Printed(), []byte(canary)) {
		t.Error("the value was printed")
	}
}

// TestA5_AdoptByPreset: a known service needs no flags; what agents may ask for
// is the preset's.
func TestA5_AdoptByPreset(t *testing.T) {
	b := yetttest.Start(t, "")
	home, _ := login(t, b)
	path := plant(t, home, ".config/gh/hosts.yml", samples[".config/gh/hosts.yml"].text)
	plant(t, home, ".netrc", samples[".netrc"].text)
	r := b.Must("adopt", "github:github.com", "--as", "github", "--remove", "--json")
	var out struct {
		Adopted []struct {
			Credential string
			Removed    bool
			NextStep   string `json:"next_step"`
		}
		Left int
	}
	r.JSON(t, &out)
	if len(out.Adopted) != 1 || out.Adopted[0].Removed || !strings.Contains(out.Adopted[0].NextStep, "gh auth logout") || out.Left != 5 {
		t.Errorf("%s", r.Stdout)
	}
	if text, _ := os.ReadFile(path); string(text) != samples[".config/gh/hosts.yml"].text {
		t.Error("a file that is not rewritten was changed")
	}
	if s := b.Must("secret", "list").Stdout; !strings.Contains(s, "https://api.github.com:443") || strings.Contains(s, "no value") {
		t.Errorf("%s", s)
	}
	if r := b.Run("adopt", "github:ghe.example.com"); r.Code == 0 {
		t.Error("a token of another server went to github.com")
	}
	if r := b.Run("adopt", "netrc:api.example.com"); r.Code != 1 || !strings.Contains(r.Stderr, "cannot be moved") {
		t.Errorf("a password: exit %d %s", r.Code, r.Stderr)
	}
	if r := b.Run("adopt", "nothing"); r.Code != 1 || !strings.Contains(r.Stderr, "lists what was found") {
		t.Errorf("exit %d %s", r.Code, r.Stderr)
	}
}

// TestA5_AdoptMovesAKey: a key goes to a host that ssh knows, and to no other.
func TestA5_AdoptMovesAKey(t *testing.T) {
	b := yetttest.Start(t, "")
	home, _ := login(t, b)
	must(t, os.Mkdir(filepath.Join(home, ".ssh"), 0o700))
	_, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(t, err)
	key := filepath.Join(home, ".ssh", "id_ed25519")
	must(t, os.WriteFile(key, pem.EncodeToMemory(block), 0o600))
	public, err := ssh.NewPublicKey(private.Public())
	must(t, err)
	line := knownhosts.HashHostname(knownhosts.Normalize("web1.example.net:2222")) + " " + string(ssh.MarshalAuthorizedKey(public))
	must(t, os.WriteFile(filepath.Join(home, ".ssh", "known_hosts"), []byte(line), 0o600))

	for _, host := range [][]string{nil, {"--host", "deploy@other.example.net"}, {"--host", "web1.example.net:2222"}} {
		if r := b.Run(append([]string{"adopt", "ssh:id_ed25519"}, host...)...); r.Code != 1 || r.Stdout != "" {
			t.Errorf("%v: exit %d %s %s", host, r.Code, r.Stdout, r.Stderr)
		}
	}
	r := b.Must("adopt", "ssh:id_ed25519", "--host", "deploy@web1.example.net:2222", "--as", "web1", "--remove")
	if !strings.Contains(r.Stdout, "ssh:web1.status") {
		t.Errorf("%s", r.Stdout)
	}
	if s := b.Must("secret", "list").Stdout; !strings.Contains(s, "deploy@web1.example.net:2222") || strings.Contains(s, "no value") {
		t.Errorf("%s", s)
	}
	if _, err := os.Lstat(key); err == nil {
		t.Error("the key is still there")
	}
}
