package yetttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// added is what yett add --json prints.
type added struct {
	Name, Difference string
	Capabilities     []wire.Access
	Test             *struct {
		OK          bool
		Status      int
		Message     string
		OperationID string `json:"operation_id"`
	}
	PublicKey string `json:"public_key"`
}

// addWith runs yett add with the value on standard input.
func (b *Broker) addWith(value string, args ...string) Result {
	return b.RunWith(value, Passphrase, append([]string{"add"}, args...)...)
}

// asks asks for an action and does not wait for the person.
func (c *Channel) asks(capability string, action map[string]any) (op Operation) {
	c.b.T.Helper()
	r := c.Call(wire.MethodActionRequest, c.Next(map[string]any{"capability": capability, "action": action, "wait_ms": 0}))
	if r.Error != nil {
		c.b.T.Fatalf("%s: %s", r.Code(), r.Error.Message)
	}
	must(c.b.T, json.Unmarshal(r.Result, &op))
	return op
}

const theirs = "# my own words\n\n[credential.mine]\nkind = \"bearer\" # and mine too\norigin = \"https://mine.example\"\n"

// TestAddGoesTheOrdinaryWay: a self-hosted preset is added to what is applied
// without changing a letter of it; the value is tried through a session of the
// command's own, with decision, intent and outcome; the value is in no output.
func TestAddGoesTheOrdinaryWay(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, theirs)
	r := b.addWith(canary+"\n", "gitlab", "--origin", up.URL, "--json")
	wantExit(t, r, 0)
	var done added
	r.JSON(t, &done)
	if done.Name != "gitlab" || len(done.Capabilities) != 2 || done.Test == nil || !done.Test.OK || done.Test.Status != 200 {
		t.Errorf("%s", r.Stdout)
	}
	if strings.Contains(done.Difference, "mine") || !strings.Contains(done.Difference, "+ credential.gitlab") {
		t.Errorf("the difference:\n%s", done.Difference)
	}
	if seen := up.Seen(); len(seen) != 1 || seen[0] != "GET /api/v4/user" {
		t.Errorf("the API saw %v", seen)
	}
	if text := b.Must("access", "show").Stdout; !strings.HasPrefix(text, theirs) {
		t.Errorf("the person's own text was changed:\n%s", text)
	}
	rows := map[string]int{}
	for _, row := range b.Activity() {
		rows[row.Kind]++
		if row.OperationID == done.Test.OperationID && !strings.Contains(string(row.Verified), "yett") {
			t.Errorf("a row of the try names another caller: %s", row.Verified)
		}
	}
	for kind, n := range map[string]int{"access.applied": 2, "secret.set": 1, "session.opened": 1, "decision": 1, "intent": 1, "outcome": 1} {
		if rows[kind] != n {
			t.Errorf("%d rows of kind %s, want %d (%v)", rows[kind], kind, n, rows)
		}
	}
	if live := b.Sessions(); len(live) != 1 || live[0].State != "ended" {
		t.Errorf("the session of the try: %+v", live)
	}
	if strings.Contains(string(b.Printed()), canary) {
		t.Error("the value was printed")
	}
	c := b.Granted("http:gitlab.read", "http:gitlab.write")
	if op := c.MustAct("http:gitlab.read", map[string]any{"method": "GET", "path": "/api/v4/projects/7/issues"}); op.State != "completed" {
		t.Errorf("%+v", op)
	}
	if op := c.asks("http:gitlab.write", map[string]any{"method": "POST", "path": "/api/v4/projects/7/issues"}); op.State != "queued" {
		t.Errorf("writing needs no card of its own: %+v", op)
	}
	if op := c.MustAct("http:gitlab.write", map[string]any{"method": "POST", "path": "/api/v4/users"}); op.State != "denied" {
		t.Errorf("%+v", op)
	}
}

// TestAddNeedsProof: nothing is applied, stored or sent without it.
func TestAddNeedsProof(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, theirs)
	args := []string{"add", "http", "--name", "demo", "--origin", up.URL, "--path", "/v1/x", "--json"}
	wantRefusal(t, b.RunWith(canary, "", args...), 3, wire.CodeProofRequired)
	wantRefusal(t, b.RunWith(canary, another, args...), 3, wire.CodeProofInvalid)
	if text := b.Must("access", "show").Stdout; text != theirs || len(up.Seen()) != 0 {
		t.Errorf("applied: %s, sent: %v", text, up.Seen())
	}
	wantRefusal(t, b.RunPlain("access", "show", "--json"), 3, wire.CodeProofRequired)
	wantRefusal(t, b.RunWith("", another, "access", "show", "--json"), 3, wire.CodeProofInvalid)
	b.RunPlain("lock")
	wantRefusal(t, b.RunWith(canary, Passphrase, args...), 5, wire.CodeLocked)
	b.Kill()
	wantRefusal(t, b.RunWith(canary, Passphrase, args...), 4, wire.CodeUnavailable)
}

// TestAddReplacesNothing: what is applied under the name stays, and so do its
// value and the grants of others.
func TestAddReplacesNothing(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := b.Granted("http:demo.read")
	before := b.Must("access", "show").Stdout
	said := wantRefusal(t, b.addWith("other-token", "http", "--name", "demo", "--origin", "https://evil.example", "--path", "/v1/x", "--json"), 1, wire.CodeBadRequest)
	if !strings.Contains(said, "credential.demo: is applied already") {
		t.Errorf("it says %q", said)
	}
	if b.Must("access", "show").Stdout != before {
		t.Error("something was applied")
	}
	args := []string{"http", "--name", "more", "--origin", up.URL, "--path", "/v1/x"}
	wantExit(t, b.addWith(canary, args...), 0)
	said = wantRefusal(t, b.addWith("other-token", append(args, "--json")...), 1, wire.CodeBadRequest)
	if !strings.Contains(said, "added already") {
		t.Errorf("it says %q", said)
	}
	if op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/still"}); op.State != "completed" {
		t.Errorf("the grant of another: %+v", op)
	}
}

// TestAddMoreForOneToken: a second addition for a token that is stored already
// asks for no value, and leaves what is applied as it is; another place is none
// that the token may go to.
func TestAddMoreForOneToken(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, theirs)
	first := []string{"http", "--name", "demo", "--origin", up.URL, "--path", "/v1/x"}
	wantExit(t, b.addWith(canary, first...), 0)
	before := strings.TrimRight(b.Must("access", "show").Stdout, "\n")
	other := []string{"http", "--name", "demo", "--origin", up.URL, "--path", "/v2/y", "--method", "get", "--method", "post", "--json"}
	r := b.addWith("", other...)
	if said := wantRefusal(t, r, 1, wire.CodeBadRequest); !strings.Contains(said, "says something else") || !strings.Contains(r.Stderr, "--as WORD") {
		t.Errorf("it says %s", r.Stderr)
	}
	other = append(other, "--as", "more")
	r = b.addWith("", other...)
	wantExit(t, r, 0)
	var done added
	if r.JSON(t, &done); len(done.Capabilities) != 2 || !done.Test.OK || strings.Contains(done.Difference, "credential.demo") {
		t.Errorf("%s", r.Stdout)
	}
	if text := b.Must("access", "show").Stdout; !strings.HasPrefix(text, before) || strings.Count(text, "[credential.") != 2 {
		t.Errorf("applied:\n%s", text)
	}
	c := b.Granted("http:demo.more.read", "http:demo.read")
	if op := c.MustAct("http:demo.more.read", map[string]any{"method": "GET", "path": "/v2/y"}); op.State != "completed" {
		t.Errorf("%+v", op)
	}
	wantRefusal(t, b.addWith("", other...), 1, wire.CodeBadRequest)
	evil := append(slices.Clone(first), "--as", "evil", "--json")
	evil[4] = "https://evil.example"
	if said := wantRefusal(t, b.addWith("", evil...), 1, wire.CodeBadRequest); !strings.Contains(said, "credential.demo: is applied already") {
		t.Errorf("it says %q", said)
	}
	if said := wantRefusal(t, b.addWith("", append(other[:len(other)-1], "still", "--value-fd", "0")...), 1, wire.CodeBadRequest); !strings.Contains(said, "has its value already") {
		t.Errorf("it says %q", said)
	}
}

// TestAddChecksTheValueFirst: a value that could not be stored or sent is
// refused before anything is applied for it, and is not repeated.
func TestAddChecksTheValueFirst(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, theirs)
	args := []string{"http", "--name", "demo", "--origin", up.URL, "--path", "/v1/x", "--json"}
	for value, why := range map[string]string{"short": "at least 8 bytes", "": "No value was given", canary + " ": "at its end", "tab\tinside-of-it": "control character", "\u00a0" + canary: "at its beginning"} {
		said := wantRefusal(t, b.addWith(value, args...), 1, wire.CodeBadRequest)
		if !strings.Contains(said, why) || !strings.Contains(said, "nothing was changed") || value != "" && strings.Contains(said, value) {
			t.Errorf("of %q it says %q", value, said)
		}
	}
	if text := b.Must("access", "show").Stdout; text != theirs {
		t.Errorf("applied:\n%s", text)
	}
	wantExit(t, b.addWith(canary, args...), 0)
}

// TestAddGoesOn: an addition that was interrupted before its value was stored is
// finished by the same command.
func TestAddGoesOn(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, theirs)
	args := []string{"http", "--name", "demo", "--origin", up.URL, "--path", "/v1/x", "--json"}
	wantExit(t, b.addWith(canary, args...), 0)
	wantExit(t, b.Run("secret", "remove", "demo"), 0)
	r := b.addWith(canary, args...)
	wantExit(t, r, 0)
	var done added
	if r.JSON(t, &done); done.Difference != "" || !done.Test.OK {
		t.Errorf("%s", r.Stdout)
	}
}

// TestAddTellsABadValue: a value that the API does not take is a failure that
// says how to give another; the person's tables stay.
func TestAddTellsABadValue(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, "")
	args := []string{"--origin", up.URL, "--json"}
	said := wantRefusal(t, b.addWith("not-the-token", append(args, "gitlab")...), 1, wire.CodeBadRequest)
	if !strings.Contains(said, "answered 401") {
		t.Errorf("it says %q", said)
	}
	r := b.addWith("not-the-token", append(args, "gitlab", "--name", "second", "--no-test")...)
	wantExit(t, r, 0)
	var done added
	if r.JSON(t, &done); done.Test != nil || len(up.Seen()) != 1 {
		t.Errorf("it was tried all the same: %s", r.Stdout)
	}
	must(t, func() error {
		r := b.RunWith(canary, Passphrase, "secret", "rotate", "gitlab")
		if r.Code != 0 {
			return fmt.Errorf("%s", r.Stderr)
		}
		return nil
	}())
	nowhere := b.addWith(canary, "http", "--name", "gone", "--origin", "http://127.0.0.1:1", "--path", "/v1/x", "--json")
	if said := wantRefusal(t, nowhere, 1, wire.CodeBadRequest); !strings.Contains(said, "gone was added") {
		t.Errorf("it says %q", said)
	}
}

// TestAddHeader: a token in a header of its own arrives there and nowhere else,
// an agent cannot set that header, and an echo of it is replaced.
func TestAddHeader(t *testing.T) {
	arrived := make(chan http.Header, 10)
	up := StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Clone()
		fmt.Fprintf(w, `{"you sent":%q}`, r.Header.Get("X-Api-Key"))
	})
	b := Start(t, "")
	wantExit(t, b.addWith(canary, "http", "--name", "demo", "--origin", up.URL, "--path", "/v1/x", "--header", "x-api-key", "--prefix", "Key "), 0)
	c := b.Granted("http:demo.read")
	op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x"})
	if op.State != "completed" || !strings.Contains(string(op.Result), `"redacted":1`) {
		t.Errorf("%+v %s", op, op.Result)
	}
	for _, name := range []string{"X-Api-Key", "x_api_key"} {
		op := c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/x", "headers": map[string]string{name: "mine"}})
		if op.State != "denied" || op.Reason.Code != wire.ReasonOutsideCapability {
			t.Errorf("%s: %+v", name, op)
		}
	}
	if n := len(arrived); n != 2 {
		t.Errorf("%d requests", n)
	}
	for len(arrived) > 0 {
		if h := <-arrived; h.Get("X-Api-Key") != "Key "+canary || h.Get("Authorization") != "" {
			t.Errorf("the API got %v", h)
		}
	}
}

// TestAddAtOnce: of additions at the same moment none takes another's tables
// away: each is applied to what is there then, or told to come again.
func TestAddAtOnce(t *testing.T) {
	b := Start(t, theirs)
	add := func(name string) error {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		conn, err := client.DialLocation(ctx, b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
		if err != nil {
			return err
		}
		defer conn.Close()
		var c wire.Challenge
		if err := conn.Call(ctx, wire.MethodVaultChallenge, wire.Managed{Request: json.RawMessage("{}")}, &c); err != nil {
			return err
		}
		raw, err := json.Marshal(wire.AccessApply{Add: true, File: "[credential." + name + "]\nkind = \"bearer\"\norigin = \"https://a.example\"\n"})
		must(t, err)
		mac := vault.Proof(template.keys.Approval, approval.ProofMessage(wire.MethodAccessApply, raw, c.Nonce))
		return conn.Call(ctx, wire.MethodAccessApply, wire.Managed{Request: raw, Proof: &wire.Proof{Nonce: c.Nonce, MAC: mac}}, nil)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			err := add(fmt.Sprintf("n%d", i))
			for errors.Is(err, &wire.Error{Code: wire.CodeBusy}) {
				err = add(fmt.Sprintf("n%d", i))
			}
			if err != nil {
				t.Errorf("n%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	text := b.Must("access", "show").Stdout
	for i := range 16 {
		if want := fmt.Sprintf("[credential.n%d]", i); !strings.Contains(text, want) {
			t.Errorf("%s is gone", want)
		}
	}
	if !strings.HasPrefix(text, theirs) {
		t.Error("what was there is gone")
	}
}

// TestAddWrongCalls: each says what is wrong with the exit code for it, and
// nothing is asked, applied or sent.
func TestAddWrongCalls(t *testing.T) {
	b := Start(t, theirs)
	for _, c := range []struct {
		says string
		exit int
		args []string
	}{
		{"there is no preset", 2, []string{"githup"}},
		{"takes no --origin", 2, []string{"github", "--origin", "https://evil.example"}},
		{"takes no --path", 2, []string{"gitlab", "--path", "/**"}},
		{"takes no --command", 2, []string{"http", "--command", "x"}},
		{"takes no --header", 2, []string{"ssh", "--header", "x"}},
		{"--origin is missing", 2, []string{"grafana", "--no-test"}},
		{"--name is missing", 2, []string{"http", "--origin", "https://a.example"}},
		{"--path is missing", 2, []string{"http", "--name", "a", "--origin", "https://a.example"}},
		{"--prefix needs --header", 2, []string{"http", "--name", "a", "--origin", "https://a.example", "--path", "/a", "--prefix", "x"}},
		{"a wildcard over everything", 1, []string{"http", "--name", "a", "--origin", "https://a.example", "--path", "/**"}},
		{"plain http", 1, []string{"gitlab", "--origin", "http://a.example"}},
		{"an origin ends after host", 1, []string{"gitlab", "--origin", "https://a.example/api"}},
		{"a name has", 1, []string{"http", "--name", "A b", "--origin", "https://a.example", "--path", "/a"}},
		{"mine: is applied already", 1, []string{"http", "--name", "mine", "--origin", "https://a.example", "--path", "/a", "--method", "get"}},
		{"is never sent", 1, []string{"http", "--name", "a", "--origin", "https://a.example", "--path", "/a", "--method", "TRACE"}},
		{"--host is missing", 2, []string{"ssh"}},
		{"which preset", 2, []string{"--no-test"}},
	} {
		r := b.addWith(canary, append(c.args, "--json")...)
		if r.Code != c.exit || !strings.Contains(r.Stderr, c.says) || strings.Contains(r.Stderr, "line ") {
			t.Errorf("%v: exit %d, want %d and %q: %s", c.args, r.Code, c.exit, c.says, r.Stderr)
		}
	}
	if r := b.RunPlain("add"); r.Code != 0 || !strings.Contains(r.Stdout, "github") || !strings.Contains(r.Stdout, "next: yett add --home "+b.Home+" PRESET") {
		t.Errorf("%+v", r)
	}
	if text := b.Must("access", "show").Stdout; text != theirs {
		t.Errorf("applied: %s", text)
	}
}

// TestAddHost: a real host is added with the key that it shows, by fingerprint
// and by the person's eyes, and a key that it does not show is refused.
func TestAddHost(t *testing.T) {
	at := reachableSSHD(t)
	host, port, _ := strings.Cut(at.Address, ":")
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(at.HostKey))
	must(t, err)
	key := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(key, at.ClientKey, 0o600))
	b := Start(t, "")
	args := []string{"ssh", "--name", "web1", "--host", host, "--port", port, "--user", at.User, "--key", key, "--command", "echo *"}
	said := wantRefusal(t, b.addWith("", append(args, "--host-key", "SHA256:"+strings.Repeat("A", 43), "--json")...), 1, wire.CodeBadRequest)
	if !strings.Contains(said, "shows no key") {
		t.Errorf("it says %q", said)
	}
	if r := b.addWith("", append(args, "--json")...); r.Code != 2 || !strings.Contains(r.Stderr, "--host-key is missing") {
		t.Errorf("nobody looked at the host's key: %+v", r)
	}
	r := b.addWith("", append(args, "--host-key", ssh.FingerprintSHA256(hostKey), "--json")...)
	wantExit(t, r, 0)
	var done added
	if r.JSON(t, &done); done.Test == nil || !done.Test.OK || len(done.Capabilities) != 2 {
		t.Errorf("%s", r.Stdout)
	}
	c := b.Granted("ssh:web1.status", "ssh:web1.run")
	if op := c.MustAct("ssh:web1.status", map[string]any{"command": "hostname"}); op.State != "completed" {
		t.Errorf("%+v", op)
	}
	if op := c.asks("ssh:web1.run", map[string]any{"command": "echo hello"}); op.State != "queued" {
		t.Errorf("the person's own commands are not asked for each time: %+v", op)
	}

	for answer, exit := range map[string]int{"y": 3, "yes": 0} {
		p := b.typing(t, "add", "ssh", "--name", "new", "--host", host, "--port", port, "--user", at.User)
		p.types("Private key file", "")
		if shown := p.shows("Are they the host's?"); !strings.Contains(shown, ssh.FingerprintSHA256(hostKey)) {
			t.Errorf("the fingerprint is not shown:\n%s", shown)
		}
		p.types("Type yes:", answer)
		if exit != 0 {
			p.shows("The host's keys were not confirmed; nothing was changed.")
		} else {
			p.types("Yett passphrase:", Passphrase)
			p.shows("authorized_keys")
			p.shows("ssh-ed25519 AAAA")
		}
		p.exits(exit)
	}
	applied := b.Must("access", "list", "--json").Stdout
	if !strings.Contains(applied, "ssh:new.status") || strings.Contains(applied, "ssh:new.run") {
		t.Errorf("%s", applied)
	}
}

// TestAccessTest: it says what Decide says, and sends nothing.
func TestAccessTest(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	for _, c := range []struct {
		exit int
		says string
		args []string
	}{
		{0, "for one action, or for a time", []string{"http:demo.read", "GET", "/v1/x"}},
		{0, "for each action", []string{"http:demo.each", "POST", "/each/x"}},
		{3, "method", []string{"http:demo.read", "POST", "/v1/x"}},
		{3, "path", []string{"http:demo.read", "GET", "/v2/x"}},
		{3, "access_token", []string{"http:demo.read", "GET", "/v1/x", "--query", "access_token=1"}},
		{3, "may not be set", []string{"http:demo.read", "GET", "/v1/x", "--header", "Host: evil"}},
		{3, "There is no capability http:nothing", []string{"http:nothing", "GET", "/v1/x"}},
	} {
		wantExit(t, b.RunPlain(append([]string{"access", "test"}, c.args...)...), c.exit, c.says)
		r := b.RunPlain(append([]string{"access", "test", "--json"}, c.args...)...)
		var said wire.AccessTested
		if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil || r.Code != c.exit || said.Allowed != (c.exit == 0) {
			t.Errorf("%v: exit %d, %s", c.args, r.Code, r.Stdout)
		}
	}
	wantExit(t, b.RunPlain("access", "test", "http:demo.read", "uptime"), 1, "http capability takes")
	if len(up.Seen()) != 0 || len(b.Pending()) != 0 {
		t.Error("something was sent or asked")
	}
}
