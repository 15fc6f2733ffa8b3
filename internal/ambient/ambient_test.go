package ambient

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/yett-broker/yett/internal/preset"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plant writes a sample and returns its path.
func plant(t *testing.T, home, pattern, text string) string {
	t.Helper()
	path := filepath.Join(home, strings.ReplaceAll(pattern, "*", "one"))
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o640))
	return path
}

// find looks and holds that no value comes out.
func find(t *testing.T, a Account) []Finding {
	t.Helper()
	found, unread := Find(t.Context(), a)
	out, err := json.Marshal(map[string]any{"found": found, "unread": unread})
	must(t, err)
	if shown := string(out) + fmt.Sprintf("%v %+v %#v", found, found, found); strings.Contains(shown, canary) {
		t.Errorf("a value came out: %s", shown)
	}
	return found
}

func namesOf(found []Finding) (names []string) {
	for _, f := range found {
		names = append(names, f.Name)
	}
	return names
}

// TestA5_EveryPlaceIsFound plants each file of the table, one at a time, and
// takes the first value away where that is offered.
func TestA5_EveryPlaceIsFound(t *testing.T) {
	for _, p := range places() {
		if p.kind == KindHelper {
			if _, ok := helpers[p.path]; !ok {
				t.Errorf("%s: no sample of a helper", p.path)
			}
		} else if _, ok := samples[p.path]; !ok {
			t.Errorf("%s: no sample", p.path)
		}
	}
	for pattern, s := range samples {
		t.Run(pattern, func(t *testing.T) {
			home := t.TempDir()
			path := plant(t, home, pattern, s.text)
			found := find(t, Account{Homes: []string{home}})
			if names := namesOf(found); !slices.Equal(names, s.names) {
				t.Fatalf("found %v, want %v", names, s.names)
			}
			for _, f := range found {
				if f.Path != path || f.Kind == "" || f.Kind == KindHelper || f.Source == "" || f.Readers == "" {
					t.Errorf("%+v", f)
				}
				value, err := Value(f, nil)
				if f.format == "exists" {
					if !errors.Is(err, ErrNoValue) {
						t.Errorf("%s: %v", f.Name, err)
					}
				} else if err != nil || string(value) != canary {
					t.Errorf("%s: the value is not the one that was planted: %v", f.Name, err)
				}
			}
			takesAway(t, found[0], s)
		})
	}
}

func takesAway(t *testing.T, f Finding, s sample) {
	t.Helper()
	err := Remove(f, []byte("another value"))
	if !errors.Is(err, ErrGone) && !errors.Is(err, ErrByHand) {
		t.Errorf("with another value: %v", err)
	}
	text, _ := os.ReadFile(f.Path)
	if string(text) != s.text {
		t.Fatalf("with another value the file changed")
	}
	err = Remove(f, []byte(canary))
	text, readErr := os.ReadFile(f.Path)
	switch {
	case s.rest == "" && (err == nil || string(text) != s.text):
		t.Errorf("taken away: %v, %q", err, text)
	case s.rest == "\x00gone" && (err != nil || !errors.Is(readErr, fs.ErrNotExist)):
		t.Errorf("the file is still there: %v", err)
	case s.rest != "" && s.rest != "\x00gone":
		if err != nil || string(text) != strings.TrimPrefix(s.rest, "\x00") {
			t.Errorf("%v, left: %q, want %q", err, text, s.rest)
		}
		if i, err := os.Stat(f.Path); err != nil || i.Mode().Perm() != 0o640 {
			t.Errorf("the mode is %v", i.Mode())
		}
		if left, _ := os.ReadDir(filepath.Dir(f.Path)); len(left) != 1 {
			t.Errorf("something was left beside it: %v", left)
		}
	}
}

func TestA5_HelpersAreNamed(t *testing.T) {
	for pattern, s := range helpers {
		home := t.TempDir()
		plant(t, home, pattern, s.text)
		found := find(t, Account{Homes: []string{home}})
		if !slices.Equal(namesOf(found), s.names) || found[0].Kind != KindHelper {
			t.Errorf("%s: %+v", pattern, found)
			continue
		}
		if _, err := Value(found[0], nil); !errors.Is(err, ErrNoValue) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// TestA5_AllAtOnce: a login with everything, looked at as one.
func TestA5_AllAtOnce(t *testing.T) {
	home, want := t.TempDir(), 0
	for pattern, s := range samples {
		plant(t, home, pattern, s.text)
		want += len(s.names)
	}
	found := find(t, Account{Homes: []string{home, home}})
	if len(found) != want {
		t.Errorf("%d found, want %d", len(found), want)
	}
	names := namesOf(found)
	slices.Sort(names)
	if len(slices.Compact(names)) != want {
		t.Error("names are not unique")
	}
}

// TestA5_TablesHaveSources: services are presets or origins, and names are ours.
func TestA5_TablesHaveSources(t *testing.T) {
	all := slices.Collect(func(yield func(string) bool) {
		for _, p := range places() {
			if !yield(p.service) {
				return
			}
		}
		for _, s := range services() {
			if !yield(s) {
				return
			}
		}
	})
	for _, s := range all {
		_, known, err := preset.Find(s)
		if err != nil || s != "" && s != "host" && !known && !strings.HasPrefix(s, "https://") {
			t.Errorf("%q is no service: %v", s, err)
		}
	}
	for _, bad := range []string{"a | b", "a|b|ini|k|token|-|-|no source", "a|b|none|k|token|-|-|https://x", "a|b|ini|-|token|-|-|https://x", "a||ini|k|token|-|-|https://x"} {
		if _, err := parsePlaces(bad); err == nil {
			t.Errorf("%q is a row", bad)
		}
	}
}

func TestA5_ProjectsAndVariables(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	put(".env", "# x\nexport GITHUB_TOKEN='"+canary+"'\nPORT=80\nEMPTY_TOKEN=\nREF_TOKEN=$OTHER\nSTRIPE_PUBLISHABLE_KEY=pk\n")
	put("deep/a/b/.env.production", "DATABASE_URL=postgres://u:"+canary+"@h/d\n")
	put("service.env", "DB_PASSWORD="+canary+"\n")
	put(".env.example", "API_KEY="+canary+"\n")
	put("node_modules/x/.env", "API_KEY="+canary+"\n")
	put(".git/.env", "API_KEY="+canary+"\n")
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero.env")))
	found, unread := Find(t.Context(), Account{Project: dir, Variables: []string{"OPENAI_API_KEY=" + canary, "PATH=/bin", "SSH_AUTH_SOCK=/x", "AWS_ACCESS_KEY_ID=A",
		"MY_SECRET=" + canary, "EMPTY_SECRET=", canary + "_TOKEN x=1"}})
	want := []string{"dotenv:GITHUB_TOKEN", "dotenv:DATABASE_URL", "dotenv:DB_PASSWORD", "env:MY_SECRET", "env:OPENAI_API_KEY"}
	if names := namesOf(found); !slices.Equal(names, want) {
		t.Errorf("found %v", names)
	}
	if len(unread) != 1 || !strings.Contains(unread[0], "not a regular file") {
		t.Errorf("a device is not told: %v", unread)
	}
	if found[0].Service != "github" || found[4].Service != "openai" {
		t.Errorf("services: %+v", found)
	}
	if v, err := Value(found[3], []string{"MY_SECRET=" + canary}); err != nil || string(v) != canary {
		t.Errorf("%v", err)
	}
	must(t, Remove(found[0], []byte(canary)))
	if text, _ := os.ReadFile(filepath.Join(dir, ".env")); bytes.Contains(text, []byte("GITHUB_TOKEN")) || !bytes.Contains(text, []byte("PORT=80")) {
		t.Errorf("left: %s", text)
	}
}

func TestA5_KeysAndAgents(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".ssh")
	must(t, os.Mkdir(dir, 0o700))
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	open, err := ssh.MarshalPrivateKey(private, "c")
	must(t, err)
	shut, err := ssh.MarshalPrivateKeyWithPassphrase(private, "c", []byte("long enough"))
	must(t, err)
	sshPublic, err := ssh.NewPublicKey(public)
	must(t, err)
	for name, text := range map[string][]byte{"id_open": pem.EncodeToMemory(open), "id_shut": pem.EncodeToMemory(shut), "id_open.pub": ssh.MarshalAuthorizedKey(sshPublic),
		"config": []byte("Host *\n"), "torn": []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")} {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	socket := filepath.Join(home, "agent")
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	keyring := agent.NewKeyring()
	must(t, keyring.Add(agent.AddedKey{PrivateKey: &private, Comment: "ada@home"}))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go agent.ServeAgent(keyring, c)
		}
	}()
	found := find(t, Account{Homes: []string{home}, AgentPath: socket})
	if names := namesOf(found); !slices.Equal(names, []string{"ssh:id_open", "ssh-agent:ada@home"}) {
		t.Fatalf("found %v", names)
	}
	if !strings.Contains(found[1].Where, ssh.FingerprintSHA256(sshPublic)) || found[1].Kind != KindAgentKey {
		t.Errorf("%+v", found[1])
	}
	value, err := Value(found[0], nil)
	if err != nil || !bytes.Equal(value, pem.EncodeToMemory(open)) {
		t.Errorf("the key's value: %v", err)
	}
	if err := Remove(found[0], []byte("other")); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	must(t, Remove(found[0], value))
	if _, unread := Find(t.Context(), Account{AgentPath: filepath.Join(home, "nobody")}); len(unread) != 1 {
		t.Errorf("an agent that is not there: %v", unread)
	}
}

// TestA5_NamesAreNoValues: what stands where a name belongs may be a value.
func TestA5_NamesAreNoValues(t *testing.T) {
	home := t.TempDir()
	long := strings.Repeat("x", 70)
	plant(t, home, ".aws/credentials", "["+long+"]\naws_secret_access_key = "+canary+"\n[a b;\x1b[31m]\naws_secret_access_key = "+canary+"2\n")
	found := find(t, Account{Homes: []string{home}})
	if names := namesOf(found); !slices.Equal(names, []string{"aws:?", "aws:?-2"}) {
		t.Fatalf("%v", names)
	}
	for i, want := range []string{canary, canary + "2"} {
		if v, err := Value(found[i], nil); err != nil || string(v) != want {
			t.Errorf("%s is taken for another: %v", found[i].Name, err)
		}
	}
}

// TestA5_Readers: who can read a file goes by all directories above it.
func TestA5_Readers(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "ya") // TMPDIR may be private
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, nil, 0o600))
	for _, c := range []struct {
		dir, file os.FileMode
		want      string
	}{{0o755, 0o644, "every account"}, {0o700, 0o644, "this account"}, {0o755, 0o600, "this account"}, {0o755, 0o640, "this account and group"}} {
		must(t, errors.Join(os.Chmod(dir, c.dir), os.Chmod(path, c.file)))
		if got := readersOf(path); !strings.HasPrefix(got, c.want) || c.want == "this account" && got != c.want {
			t.Errorf("%o/%o: %s", c.dir, c.file, got)
		}
	}
}

// TestA5_LinkIsLeftAlone: a file of dotfiles kept elsewhere is not rewritten.
func TestA5_LinkIsLeftAlone(t *testing.T) {
	home, store := t.TempDir(), t.TempDir()
	kept := plant(t, store, "npmrc", "//r.example.com/:_authToken="+canary+"\n")
	must(t, os.Symlink(kept, filepath.Join(home, ".npmrc")))
	found := find(t, Account{Homes: []string{home}})
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	if err := Remove(found[0], []byte(canary)); !errors.Is(err, ErrByHand) {
		t.Errorf("%v", err)
	}
}

func FuzzFormats(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for format, read := range readers {
			for _, e := range read(bytes.Clone(text), []string{"token", "password", "auth", "oauth_token"}) {
				if e.removable && (e.line[0] < 0 || e.line[1] > len(text) || e.line[0] > e.line[1]) {
					t.Fatalf("%s: %v of %d", format, e.line, len(text))
				}
			}
		}
	})
}
