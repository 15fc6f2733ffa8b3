package yetttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

// actMany asks for as many equal actions at once, and returns their results.
func (c *Channel) actMany(n int, capability string, action map[string]any) []Operation {
	c.b.T.Helper()
	for range n {
		c.id++
		frame, err := wire.EncodeRequest(c.id, wire.MethodActionRequest, c.Next(map[string]any{"capability": capability, "action": action, "wait_ms": 30_000}))
		must(c.b.T, err)
		c.Write(frame)
	}
	var all []Operation
	for range n {
		r, ok := c.Read()
		if !ok || r.Error != nil {
			c.b.T.Fatalf("one of many actions: %+v", r)
		}
		var op Operation
		must(c.b.T, json.Unmarshal(r.Result, &op))
		all = append(all, op)
	}
	return all
}

func get(path string) map[string]any { return map[string]any{"method": "GET", "path": path} }

// status is the HTTP status of an action, 0 if nothing was sent.
func (op Operation) status(t testing.TB) int {
	t.Helper()
	var r struct{ Status int }
	must(t, json.Unmarshal(op.Result, &r))
	return r.Status
}

// notSent is the error and the next step of an action that was not sent.
func (op Operation) notSent(t testing.TB) wire.NotSent {
	t.Helper()
	var r wire.NotSent
	if op.State != "completed" || json.Unmarshal(op.Result, &r) != nil || r.Error == "" {
		t.Fatalf("the action is %+v: %s", op, op.Result)
	}
	return r
}

// tokenBroker is a broker with clients of a token server: the kind of each by its name.
func tokenBroker(t *testing.T, more string, kinds map[string]string) (*Broker, *tokenServer) {
	s := startTokenServer(t)
	values := []string{}
	for name, kind := range kinds {
		c := s.client(name, !strings.HasSuffix(kind, " public"))
		switch kind {
		case "oauth2-client":
			values = append(values, name, c.secret)
		case "oauth2-refresh":
			values = append(values, name, c.refresh, name+"-client", c.secret)
		default:
			values = append(values, name, c.refresh)
		}
	}
	return Start(t, s.accessOf(kinds)+more, values...), s
}

const refreshing, public, minting = "oauth2-refresh", "oauth2-refresh public", "oauth2-client"

// TestH16_OneExchange: however many actions want a token at once, its value is
// exchanged once; a rotated refresh token is durable before the access token is
// used, so that a restart goes on with it; and the provider, which takes a second
// use of one for theft, never sees one.
func TestH16_OneExchange(t *testing.T) {
	b, s := tokenBroker(t, "", map[string]string{"many": refreshing, "phone": public, "crm": minting})
	many := s.clients["many"]
	s.with(func() { many.life = time.Second })
	c := b.Granted("http:many", "http:phone", "http:crm")
	if op := c.MustAct("http:many", get("/many/a")); op.status(t) != 200 {
		t.Fatalf("the first action: %s", op.Result)
	}
	time.Sleep(1100 * time.Millisecond) // the token's own end
	s.with(func() { many.life = time.Hour })
	for _, op := range c.actMany(20, "http:many", get("/many/b")) {
		if op.status(t) != 200 {
			t.Fatalf("one of 20: %s", op.Result)
		}
	}
	if exchanges, calls := s.counts(many); exchanges != 2 || calls != 21 {
		t.Errorf("%d exchanges and %d calls, want 2 and 21", exchanges, calls)
	}
	for _, name := range []string{"phone", "crm"} {
		for range 2 {
			if op := c.MustAct("http:"+name, get("/"+name+"/a")); op.status(t) != 200 {
				t.Errorf("%s: %s", name, op.Result)
			}
		}
		if exchanges, _ := s.counts(s.clients[name]); exchanges != 1 {
			t.Errorf("%s: %d exchanges", name, exchanges)
		}
	}

	// An access token that the API no longer takes is dropped, and nothing is
	// repeated: the agent sees the refusal.
	s.with(func() { clear(many.access) })
	if op := c.MustAct("http:many", get("/many/c")); op.status(t) != 401 {
		t.Errorf("a revoked access token: %s", op.Result)
	}
	if op := c.MustAct("http:many", get("/many/c")); op.status(t) != 200 {
		t.Errorf("the action after it: %s", op.Result)
	}
	if exchanges, calls := s.counts(many); exchanges != 3 || calls != 23 {
		t.Errorf("%d exchanges and %d calls, want 3 and 23", exchanges, calls)
	}

	b.Restart()
	c = b.Granted("http:many", "http:crm")
	for _, name := range []string{"many", "crm"} {
		if op := c.MustAct("http:"+name, get("/"+name+"/d")); op.status(t) != 200 {
			t.Errorf("%s after a restart: %s", name, op.Result)
		}
	}
	if many.revoked {
		t.Error("a refresh token was used twice")
	}

	// Locking ends it; what is minted lies in memory only.
	before, _ := s.counts(many)
	b.Must("lock")
	b.Unlock()
	c = b.Granted("http:many")
	if op := c.MustAct("http:many", get("/many/e")); op.status(t) != 200 {
		t.Errorf("after a lock: %s", op.Result)
	}
	if after, _ := s.counts(many); after != before+1 {
		t.Errorf("%d exchanges after a lock, want one", after-before)
	}
}

// TestH16_CrashBeforeStored: the provider rotated, and the broker died before the
// new token was on disk. The stored one is not wiped, what is the matter is said
// with what to do, and a new value puts it right.
func TestH16_CrashBeforeStored(t *testing.T) {
	b, s := tokenBroker(t, "", map[string]string{"mail": refreshing})
	mail := s.clients["mail"]
	rotated := make(chan struct{})
	mail.answering = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "1000") // 200, and then nothing
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		close(rotated)
		<-r.Context().Done()
		return true
	}
	c := b.Granted("http:mail")
	c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:mail", "action": get("/mail/a")}), nil)
	<-rotated
	b.Kill()
	s.with(func() { mail.answering = nil })
	b.Serve()
	b.Unlock()

	c = b.Granted("http:mail")
	said := c.MustAct("http:mail", get("/mail/b")).notSent(t)
	if !strings.Contains(said.Error, "invalid_grant") || !strings.Contains(said.NextStep, "yett secret rotate mail") {
		t.Errorf("it says %+v", said)
	}
	var requested, received int
	for _, r := range b.Activity() {
		switch r.Kind {
		case "token.requested":
			requested++
		case "token.received":
			received++
		}
	}
	if requested != 2 || received != 1 {
		t.Errorf("the ledger has %d requests for a token and %d answers, want 2 and 1", requested, received)
	}
	var secrets []struct {
		Name string
		Set  bool
	}
	b.Must("secret", "list", "--json").JSON(t, &secrets)
	for _, x := range secrets {
		if !x.Set {
			t.Errorf("the value of %s was wiped", x.Name)
		}
	}
	b.RunWith(s.signIn(mail)+"\n", Passphrase, "secret", "rotate", "mail")
	if op := c.MustAct("http:mail", get("/mail/c")); op.status(t) != 200 {
		t.Errorf("with a new value: %s", op.Result)
	}
}

// TestH16_ReplacedMeanwhile: the value that the endpoint refuses is not the one
// that is stored by then: that one is tried, once.
func TestH16_ReplacedMeanwhile(t *testing.T) {
	b, s := tokenBroker(t, "", map[string]string{"mail": refreshing})
	mail := s.clients["mail"]
	fresh := s.signIn(mail) // so the stored one is good no more
	mail.answering = func(http.ResponseWriter, *http.Request) bool {
		s.with(func() { mail.answering = nil })
		b.RunWith(fresh+"\n", Passphrase, "secret", "rotate", "mail")
		return false
	}
	c := b.Granted("http:mail")
	if op := c.MustAct("http:mail", get("/mail/a")); op.status(t) != 200 {
		t.Errorf("it is %s", op.Result)
	}
	if exchanges, calls := s.counts(mail); exchanges != 2 || calls != 1 {
		t.Errorf("%d exchanges and %d calls, want 2 and 1", exchanges, calls)
	}
}

// TestH16_VaultCannotBeWritten: the only good refresh token is kept until it can
// be stored, and the access token that came with it is not used before.
func TestH16_VaultCannotBeWritten(t *testing.T) {
	b, s := tokenBroker(t, "", map[string]string{"mail": refreshing})
	c := b.Granted("http:mail")
	must(t, os.Chmod(b.Home, 0o500))
	defer os.Chmod(b.Home, 0o700)
	for range 2 {
		if said := c.MustAct("http:mail", get("/mail/a")).notSent(t); !strings.Contains(said.Error, "could not be stored") {
			t.Errorf("it says %+v", said)
		}
	}
	if exchanges, calls := s.counts(s.clients["mail"]); exchanges != 1 || calls != 0 {
		t.Errorf("%d exchanges and %d calls, want 1 and none", exchanges, calls)
	}
	must(t, os.Chmod(b.Home, 0o700))
	if op := c.MustAct("http:mail", get("/mail/b")); op.status(t) != 200 {
		t.Errorf("when it can be written again: %s", op.Result)
	}
	b.Restart()
	c = b.Granted("http:mail")
	if op := c.MustAct("http:mail", get("/mail/c")); op.status(t) != 200 || s.clients["mail"].revoked {
		t.Errorf("after a restart: %s", op.Result)
	}
}

// TestE5_TokenExchange: a session that ends while its token is asked for sends
// nothing more; but a refresh token that was used already is replaced all the same,
// and so it is when the vault is locked meanwhile.
func TestE5_TokenExchange(t *testing.T) {
	stalled, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer stalled.Close()
	b, s := tokenBroker(t, fmt.Sprintf(`
[credential.stalled]
kind           = "oauth2-client"
origin         = "http://127.0.0.1:9"
token_endpoint = "https://%s/token"
client_id      = "stalled"

[capability."http:stalled"]
credential = "stalled"
methods    = ["GET"]
paths      = ["/stalled/**"]
`, stalled.Addr()), map[string]string{"slow": refreshing})
	b.SetSecret("stalled", "a-secret-of-a-client")
	slow := s.clients["slow"]

	t.Run("before the first byte", func(t *testing.T) {
		c := b.Granted("http:stalled")
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:stalled", "action": get("/stalled/a")}), nil)
		conn, err := stalled.Accept()
		must(t, err)
		defer conn.Close()
		hello := make([]byte, 16<<10)
		conn.SetReadDeadline(time.Now().Add(Patience))
		if n, err := conn.Read(hello); n == 0 {
			t.Fatal(err)
		}
		b.Must("revoke", c.Session.SessionID)
		revoked := time.Now()
		if rest, _ := io.ReadAll(conn); len(rest) > 0 || time.Since(revoked) > 100*time.Millisecond {
			t.Errorf("%d bytes after the end, and the connection ended after %v", len(rest), time.Since(revoked))
		}
	})
	hold := func() (arrived, answer chan struct{}) {
		arrived, answer = make(chan struct{}), make(chan struct{})
		s.with(func() {
			slow.answering = func(http.ResponseWriter, *http.Request) bool {
				close(arrived)
				<-answer
				return false
			}
		})
		return arrived, answer
	}
	t.Run("while the answer is awaited", func(t *testing.T) {
		arrived, answer := hold()
		c := b.Granted("http:slow")
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:slow", "action": get("/slow/a")}), nil)
		<-arrived
		b.Must("revoke", c.Session.SessionID)
		close(answer)
		s.with(func() { slow.answering = nil })
		next := b.Granted("http:slow")
		if op := next.MustAct("http:slow", get("/slow/b")); op.status(t) != 200 {
			t.Errorf("the next session: %s", op.Result)
		}
		if _, calls := s.counts(slow); calls != 1 || slow.revoked {
			t.Errorf("%d calls, revoked: %v", calls, slow.revoked)
		}
	})
	t.Run("a lock waits for the new token", func(t *testing.T) {
		s.with(func() { clear(slow.access) })
		c := b.Granted("http:slow")
		c.MustAct("http:slow", get("/slow/c")) // 401
		arrived, answer := hold()
		_, before := s.counts(slow)
		c.Must(wire.MethodActionRequest, c.Next(map[string]any{"capability": "http:slow", "action": get("/slow/d")}), nil)
		<-arrived
		locked := make(chan struct{})
		go func() {
			defer close(locked)
			b.RunPlain("lock")
		}()
		for b.RunPlain("status", "--json"); !strings.Contains(b.RunPlain("status", "--json").Stdout, `"locked"`); {
		}
		close(answer)
		<-locked
		s.with(func() { slow.answering = nil })
		b.Unlock()
		if _, after := s.counts(slow); after != before {
			t.Error("an action went out after the lock")
		}
		c = b.Granted("http:slow")
		if op := c.MustAct("http:slow", get("/slow/e")); op.status(t) != 200 || slow.revoked {
			t.Errorf("after the lock: %s, revoked: %v", op.Result, slow.revoked)
		}
	})
}

// TestA09_TokensAreNowhere: of no credential that is exchanged, and of no token,
// stands anything in what the agent reads, in rows, in what is printed or on disk,
// although the token endpoint and the API repeat what they were sent.
func TestA09_TokensAreNowhere(t *testing.T) {
	b, s := tokenBroker(t, "", map[string]string{"mail": refreshing, "crm": minting, "wrong": minting})
	b.RunWith("a-wrong-secret-of-a-client\n", Passphrase, "secret", "rotate", "wrong")
	s.issued = append(s.issued, "a-wrong-secret-of-a-client")
	c := b.Granted("http:mail", "http:crm", "http:wrong")
	read := func(op Operation) {
		var r struct {
			BodyRef string `json:"body_ref"`
		}
		must(t, json.Unmarshal(op.Result, &r))
		c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": r.BodyRef, "offset": 0, "limit": 4096}), nil)
	}
	read(c.MustAct("http:mail", get("/mail/a")))
	read(c.MustAct("http:crm", get("/crm/a")))
	if said := c.MustAct("http:wrong", get("/wrong/a")).notSent(t); !strings.Contains(said.Error, "invalid_client") {
		t.Errorf("a wrong secret: %+v", said)
	}
	s.with(func() { s.clients["mail"].revoked = true; clear(s.clients["mail"].access) })
	c.MustAct("http:mail", get("/mail/b")) // 401
	if said := c.MustAct("http:mail", get("/mail/c")).notSent(t); !strings.Contains(said.Error, "invalid_grant") {
		t.Errorf("a revoked family: %+v", said)
	}

	all := canaries{}
	for i, token := range s.issued {
		all.add(fmt.Sprint("token ", i), token)
	}
	rows, err := json.Marshal(b.Activity())
	must(t, err)
	for where, text := range map[string][]byte{"what the agent read": c.Got.Bytes(), "a row": rows, "what was printed": b.Printed()} {
		all.search(t, where, text)
	}
	all.searchFiles(t, b.Home)
	kinds := []string{}
	for _, r := range b.Activity() {
		if strings.HasPrefix(r.Kind, "token.") {
			kinds = append(kinds, r.Kind)
		}
	}
	if n := len(kinds); n != 8 || !slices.Contains(kinds, "token.received") {
		t.Errorf("the ledger has %v about exchanges", kinds)
	}
	if len(s.issued) < 8 {
		t.Errorf("only %d tokens were looked for", len(s.issued))
	}
}
