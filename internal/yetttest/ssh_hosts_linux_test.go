package yetttest

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/wire"
)

// chain is a configuration of ssh for a host behind a jump host, with what its
// lists know of both.
type chain struct {
	outer                    *sshServer
	last                     sshdAt
	dir, config, known       string
	keyOuter, keyLast, trace string
}

const keyWord = "a wörd of the key"

func newChain(t *testing.T) *chain {
	c := &chain{outer: startSSHServer(t), last: reachableSSHD(t), dir: t.TempDir()}
	at := func(name, text string) string {
		path := filepath.Join(c.dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	c.keyOuter = at("id_outer", string(c.outer.ClientKey))
	c.trace = filepath.Join(c.dir, "ran")
	raw, err := ssh.ParseRawPrivateKey(c.last.ClientKey)
	must(t, err)
	block, err := ssh.MarshalPrivateKeyWithPassphrase(raw, "", []byte(keyWord))
	must(t, err)
	c.keyLast = at("id_last", string(pem.EncodeToMemory(block)))
	var known strings.Builder
	for address, key := range map[string]string{c.outer.Address: c.outer.HostKey, c.last.Address: c.last.HostKey} {
		fmt.Fprintf(&known, "%s %s\n", knownhosts.HashHostname(knownhosts.Normalize(address)), key)
	}
	c.known = at("known_hosts", known.String())
	host := func(name, address, user, key, more string) string {
		_, port, _ := net.SplitHostPort(address)
		return fmt.Sprintf("Host %s\n HostName 127.0.0.1\n Port %s\n User %s\n IdentityFile %s\n%s", name, port, user, key, more)
	}
	c.config = at("config", host("web1", c.last.Address, c.last.User, c.keyLast, " ProxyJump bastion\n SendEnv LANG LC_*\n ForwardAgent yes\n ServerAliveInterval 20\n")+
		host("bastion", c.outer.Address, c.outer.User, c.keyOuter, "")+
		"Host byprogram\n ProxyCommand nc %h %p\nHost unseen\n HostName 127.0.0.1\n Port 1\nHost behind\n ProxyJump unseen\n"+
		"Match exec \"touch "+c.trace+"\"\n User evil\n")
	return c
}

func (c *chain) args(more ...string) []string {
	return append([]string{"ssh", "import", "--config", c.config, "--known-hosts", c.known, "--json"}, more...)
}

type importedHosts struct {
	Hosts []struct {
		Name, From, Address, User, Key string
		Jump                           []string
	}
	LeftOut []struct{ Host, Why string } `json:"left_out"`
	Not     []struct {
		Directive, File, Why string
		Line                 int
		Hosts                []string
	} `json:"not_taken_over"`
	Difference string
	Applied    bool
}

// TestSSHImport takes over what ssh knows, and acts by it: a host behind a jump
// host, with an encrypted key. What cannot be taken over is named, each with its
// line, and nothing that the configuration would run is run.
func TestSSHImport(t *testing.T) {
	ch := newChain(t)
	b := Start(t, theirs)
	wantRefusal(t, b.RunPlain(ch.args()...), 3, wire.CodeProofRequired)
	wantRefusal(t, b.RunWith("", another, ch.args()...), 3, wire.CodeProofInvalid)
	var seen importedHosts
	r := b.Run(ch.args("--dry-run")...)
	wantExit(t, r, 0)
	r.JSON(t, &seen)
	ch.wantPlan(t, seen)
	if r := b.RunWith("wrong\n", Passphrase, ch.args("--key-passphrase-fd", "0")...); r.Code != 1 || !strings.Contains(r.Stderr, "passphrase is wrong") {
		t.Errorf("a wrong passphrase: %+v", r)
	}
	p := b.typing(t, "ssh", "import", "--config", ch.config, "--known-hosts", ch.known)
	p.shows("reads which hosts are applied")
	p.types("Yett passphrase:", Passphrase)
	p.shows("+ host.")
	p.types("Passphrase of the key", keyWord)
	p.types("Apply this?", "no")
	p.shows("Nothing was applied.")
	p.exits(1)
	if text := b.Must("access", "show").Stdout; text != theirs {
		t.Fatalf("something was applied:\n%s", text)
	}
	r = b.RunWith(keyWord+"\n", Passphrase, ch.args("--key-passphrase-fd", "0")...)
	wantExit(t, r, 0)
	if r.JSON(t, &seen); !seen.Applied {
		t.Errorf("%s", r.Stdout)
	}
	if text := b.Must("access", "show").Stdout; !strings.HasPrefix(text, theirs) {
		t.Errorf("the person's own text was changed:\n%s", text)
	}
	for _, key := range [][]byte{ch.outer.ClientKey, ch.last.ClientKey} {
		if strings.Contains(string(b.Printed()), string(key[60:100])) {
			t.Error("a private key was printed")
		}
	}
	if _, err := os.Stat(ch.trace); err == nil {
		t.Error("a Match exec was run")
	}
	if r := b.Run(ch.args()...); r.Code != 1 || !strings.Contains(r.Stderr, "No new host") {
		t.Errorf("once more: %+v", r)
	}
	b.throughTheChain(t, ch)
	b.changedHost(t, ch)
}

func (ch *chain) wantPlan(t *testing.T, seen importedHosts) {
	t.Helper()
	var names []string
	for _, h := range seen.Hosts {
		names = append(names, h.Name)
	}
	if !slices.Equal(names, []string{"bastion", "web1"}) || seen.Hosts[1].Jump[0] != "bastion" || seen.Applied {
		t.Errorf("hosts %+v", seen.Hosts)
	}
	var left []string
	for _, l := range seen.LeftOut {
		left = append(left, l.Host+": "+l.Why)
	}
	for _, want := range []string{"byprogram: it is reached by a program", "unseen: ssh knows no key", "behind: its jump host unseen cannot be taken over"} {
		if !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no %q in %q", want, left)
		}
	}
	var not []string
	for _, n := range seen.Not {
		not = append(not, fmt.Sprintf("%s:%d %s %v: %s", filepath.Base(n.File), n.Line, n.Directive, n.Hosts, n.Why))
	}
	for _, want := range []string{"config:8 ForwardAgent yes [web1]: an agent is never forwarded", "SendEnv LC_* [web1]", "Match exec touch"} {
		if !slices.ContainsFunc(not, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no %q in %q", want, not)
		}
	}
	for _, want := range []string{"+ jump: bastion", "+ environment: agents may set LANG", "+ keepalive: 20s", "+ host key: ssh-ed25519"} {
		if !strings.Contains(seen.Difference, want) {
			t.Errorf("no %q in\n%s", want, seen.Difference)
		}
	}
}

// throughTheChain asks for the host behind the jump host, looks at the card, and
// at the row.
func (b *Broker) throughTheChain(t *testing.T, ch *chain) {
	t.Helper()
	c := b.Open()
	c.OpenSession("ssh:web1.status")
	card := b.WaitCard()
	text := string(card.Card)
	outer, last := fingerprintOf(t, ch.outer.HostKey), fingerprintOf(t, ch.last.HostKey)
	for _, want := range []string{`"via":[{"host_keys":["` + outer + `"],"target":"` + ch.outer.User + "@" + ch.outer.Address, `"host_keys":["` + last + `"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("the card has no %s:\n%s", want, text)
		}
	}
	if shown := b.Must("pending", card.ApprovalID).Stdout; !strings.Contains(shown, "over "+ch.outer.User+"@"+ch.outer.Address) || !strings.Contains(shown, "host key "+last) {
		t.Errorf("the way is not shown:\n%s", shown)
	}
	b.Approve(card, "--for", "1h")
	op := c.MustAct("ssh:web1.status", map[string]any{"command": "hostname"})
	if op.State != string(action.Completed) || !strings.Contains(string(op.Result), `"status":0`) {
		t.Fatalf("%+v: %s", op, op.Result)
	}
	if n := ch.outer.accepted.Load(); n != 1 {
		t.Errorf("%d connections at the jump host", n)
	}
	for _, row := range b.Activity() {
		if row.OperationID != op.OperationID || row.Kind != "outcome" {
			continue
		}
		var out struct {
			HostKey string `json:"host_key"`
			Via     []string
		}
		must(t, json.Unmarshal(row.Outcome, &out))
		if !strings.HasSuffix(out.HostKey, last) || len(out.Via) != 1 || !strings.HasSuffix(out.Via[0], ch.outer.Address) {
			t.Errorf("the row says %s", row.Outcome)
		}
	}
}

// changedHost lists another key for the jump host, as if its own had changed: it
// is fatal, no card asks about it, and yett ssh scan shows old and new.
func (b *Broker) changedHost(t *testing.T, ch *chain) {
	t.Helper()
	scan := func(name string) Result { return b.Run("ssh", "scan", name, "--known-hosts", ch.known, "--json") }
	var seen struct {
		Keys []struct {
			Fingerprint   string
			Listed, Known bool
		}
		Listed, Known []string
		Changed       bool
	}
	r := scan("bastion")
	wantExit(t, r, 0)
	if r.JSON(t, &seen); len(seen.Keys) != 1 || !seen.Keys[0].Listed || !seen.Keys[0].Known || seen.Changed {
		t.Errorf("%s", r.Stdout)
	}
	if r := b.RunPlain("ssh", "scan", ch.outer.Address, "--known-hosts", ch.known); r.Code != 0 || !strings.Contains(r.Stdout, "known to ssh") || !strings.Contains(r.Stderr, "not compared") {
		t.Errorf("without a proof: %+v", r)
	}
	b.scanThroughTheChain(t, ch)
	granted := b.Granted("ssh:web1.status")
	wanted := startSSHServer(t).HostKey
	b.Apply(strings.ReplaceAll(b.Must("access", "show").Stdout, ch.outer.HostKey, wanted))
	if op := granted.Act("ssh:web1.status", map[string]any{"command": "hostname"}); !strings.Contains(string(op.Result), "capability_not_granted") && op.Error == nil {
		t.Errorf("a grant outlived the change of a host key on its way: %s", op.Result)
	}
	c := b.Granted("ssh:web1.status")
	op := c.MustAct("ssh:web1.status", map[string]any{"command": "hostname"})
	for _, want := range []string{"jump host bastion", "not listed for it", fingerprintOf(t, wanted), fingerprintOf(t, ch.outer.HostKey), "yett ssh scan bastion"} {
		if !strings.Contains(string(op.Result), want) {
			t.Errorf("no %q in %s", want, op.Result)
		}
	}
	if cards := b.Pending(); len(cards) != 0 {
		t.Errorf("a card asks about the changed key: %s", cards[0].Card)
	}
	before := ch.outer.accepted.Load()
	if r := b.Run("ssh", "scan", "web1", "--known-hosts", ch.known); r.Code != 3 || !strings.Contains(r.Stderr, "jump host bastion") || !strings.Contains(r.Stderr, "yett ssh scan --home "+b.Home+" bastion") {
		t.Errorf("over a jump host that changed: %+v", r)
	}
	if n := ch.outer.accepted.Load() - before; n != 1 {
		t.Errorf("%d connections to a jump host that changed", n)
	}
	r = scan("bastion")
	wantExit(t, r, 3)
	if r.JSON(t, &seen); !seen.Changed || seen.Listed[0] != fingerprintOf(t, wanted) || seen.Keys[0].Fingerprint != fingerprintOf(t, ch.outer.HostKey) {
		t.Errorf("%s", r.Stdout)
	}
}

// scanThroughTheChain asks for the keys of the host behind the jump host, by its
// table and as one that is not declared yet. It takes the person's proof, and a row
// says what was asked and shown; the host itself is offered no key.
func (b *Broker) scanThroughTheChain(t *testing.T, ch *chain) {
	t.Helper()
	last, outer := fingerprintOf(t, ch.last.HostKey), ch.outer.User+"@"+ch.outer.Address
	r := b.Run("ssh", "scan", "web1", "--known-hosts", ch.known)
	if r.Code != 0 || !strings.Contains(r.Stdout, "over bastion shows") || !strings.Contains(r.Stdout, last+"  known to ssh, listed") {
		t.Errorf("by its table: %+v", r)
	}
	fresh := startSSHServer(t)
	r = b.Run("ssh", "scan", fresh.Address, "--jump", "bastion", "--known-hosts", ch.known)
	if r.Code != 0 || !strings.Contains(r.Stdout, fingerprintOf(t, fresh.HostKey)+"  new") || !strings.Contains(r.Stdout, "host_keys = [") {
		t.Errorf("not declared yet: %+v", r)
	}
	if len(fresh.offered()) != 0 {
		t.Errorf("the host was offered %v", fresh.offered())
	}
	if strings.Contains(b.Must("access", "show").Stdout, strings.Fields(fresh.HostKey)[1]) {
		t.Error("a key that was shown is listed now")
	}
	before := ch.outer.accepted.Load()
	for name, r := range map[string]Result{
		"without a proof":    b.RunPlain("ssh", "scan", fresh.Address, "--jump", "bastion", "--known-hosts", ch.known, "--json"),
		"by another proof":   b.RunWith("", another, "ssh", "scan", "web1", "--known-hosts", ch.known, "--json"),
		"over nobody":        b.Run("ssh", "scan", "web1", "--jump", "nobody", "--known-hosts", ch.known, "--json"),
		"to no real address": b.Run("ssh", "scan", "a b", "--jump", "bastion", "--known-hosts", ch.known, "--json"),
	} {
		if r.Code == 0 || r.Stdout != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	conn, err := client.DialLocation(t.Context(), b.Location(), client.Options{Program: "test", Role: wire.RoleCLI})
	must(t, err)
	defer conn.Close()
	request := wire.Managed{Request: json.RawMessage(fmt.Sprintf(`{"address":%q,"jump":["bastion"]}`, fresh.Address))}
	if err := conn.Call(t.Context(), wire.MethodHostKeys, request, nil); !errors.Is(err, &wire.Error{Code: wire.CodeProofRequired}) {
		t.Errorf("the broker, asked without a proof: %v", err)
	}
	if n := ch.outer.accepted.Load() - before; n != 0 {
		t.Errorf("%d connections to the jump host for what was refused", n)
	}
	var asked, shown int
	for _, row := range b.Activity() {
		if row.Kind != "host.asked" {
			continue
		}
		if asked++; !strings.Contains(string(row.Request), outer) {
			t.Errorf("the row says %s", row.Request)
		}
		if strings.Contains(string(row.Outcome), last) || strings.Contains(string(row.Outcome), fingerprintOf(t, fresh.HostKey)) {
			shown++
		}
	}
	if asked != 4 || shown != 2 {
		t.Errorf("%d rows about asking, %d of them with keys", asked, shown)
	}
	b.lockEndsAScan(t, ch)
}

// lockEndsAScan locks while a host behind the jump host is asked that says
// nothing: the connection to it ends, and so does the command.
func (b *Broker) lockEndsAScan(t *testing.T, ch *chain) {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	scanned := make(chan Result, 1)
	go func() {
		scanned <- b.Run("ssh", "scan", silent.Addr().String(), "--jump", "bastion", "--known-hosts", ch.known)
	}()
	must(t, silent.(*net.TCPListener).SetDeadline(time.Now().Add(30*time.Second)))
	c, err := silent.Accept()
	must(t, err)
	defer c.Close()
	b.Must("lock")
	must(t, c.SetReadDeadline(time.Now().Add(5*time.Second))) // the question itself would take longer
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the host was asked on after the lock: %v", err)
	}
	if r := <-scanned; r.Code != 4 || !strings.Contains(r.Stderr, "Yett was locked") {
		t.Errorf("the command says %+v", r)
	}
	b.Unlock()
}

func fingerprintOf(t *testing.T, line string) string {
	t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	must(t, err)
	return ssh.FingerprintSHA256(key)
}

// TestSSHKeygen: a key is made where nobody can read it, and only its public part
// comes out, by proof.
func TestSSHKeygen(t *testing.T) {
	at := startSSHServer(t)
	file := fmt.Sprintf("[credential.made]\nkind = \"ssh-key\"\n[host.h]\naddress = %q\nuser = %q\nkey = \"made\"\nhost_keys = [%q]\n"+
		"[capability.\"ssh:h\"]\nhost = \"h\"\ncommands = [\"hostname\"]\n", at.Address, at.User, at.HostKey)
	b := Start(t, theirs+file)
	wantRefusal(t, b.RunPlain("ssh", "keygen", "made", "--json"), 3, wire.CodeProofRequired)
	wantRefusal(t, b.RunWith("", another, "ssh", "keygen", "made", "--json"), 3, wire.CodeProofInvalid)
	wantRefusal(t, b.Run("ssh", "public", "made", "--json"), 1, wire.CodeBadRequest)
	for name, want := range map[string]string{"nobody": "No credential nobody is declared", "mine": "is of kind bearer"} {
		if said := wantRefusal(t, b.Run("ssh", "keygen", name, "--json"), 1, wire.CodeBadRequest); !strings.Contains(said, want) {
			t.Errorf("%s: %s", name, said)
		}
	}
	made := b.Must("ssh", "keygen", "made").Stdout
	if key, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(made)); err != nil || key.Type() != ssh.KeyAlgoED25519 || comment != "yett-made" {
		t.Fatalf("%q: %v", made, err)
	}
	if r := b.Run("ssh", "keygen", "made"); r.Code != 1 || !strings.Contains(r.Stderr, "yett ssh keygen --home "+b.Home+" made --rotate") {
		t.Errorf("a key that is there: %+v", r)
	}
	if again := b.Must("ssh", "public", "made").Stdout; again != made {
		t.Errorf("the public part: %q, then %q", made, again)
	}
	other := b.Must("ssh", "keygen", "made", "--rotate", "--type", "ecdsa").Stdout
	if other == made || !strings.HasPrefix(other, "ecdsa-sha2-nistp256 ") {
		t.Errorf("rotated: %q", other)
	}
	at.Authorize(t, other)
	c := b.Granted("ssh:h")
	if op := c.MustAct("ssh:h", map[string]any{"command": "hostname"}); !strings.Contains(string(op.Result), `"status":0`) {
		t.Errorf("%+v: %s", op, op.Result)
	}
	b.rotateEncrypted(t, at)
	if op := c.MustAct("ssh:h", map[string]any{"command": "hostname"}); !strings.Contains(string(op.Result), `"status":0`) {
		t.Errorf("%+v: %s", op, op.Result)
	}
	if strings.Contains(string(b.Printed()), "PRIVATE KEY") {
		t.Error("a private key was printed")
	}
}

// rotateEncrypted gives the key of the server, encrypted, on standard input, and
// its passphrase on a descriptor of its own.
func (b *Broker) rotateEncrypted(t *testing.T, at *sshServer) {
	t.Helper()
	raw, err := ssh.ParseRawPrivateKey(at.ClientKey)
	must(t, err)
	block, err := ssh.MarshalPrivateKeyWithPassphrase(raw, "", []byte(keyWord))
	must(t, err)
	for word, want := range map[string]string{"wrong": "passphrase is wrong", keyWord: "made has its value"} {
		files := []*os.File{}
		for _, text := range []string{Passphrase, word} {
			r, w, err := os.Pipe()
			must(t, err)
			fmt.Fprintln(w, text)
			w.Close()
			defer r.Close()
			files = append(files, r)
		}
		cmd := exec.Command(Bin("yett"), "secret", "rotate", "made", "--home", b.Home, "--passphrase-fd", "3", "--key-passphrase-fd", "4")
		cmd.Env, cmd.ExtraFiles, cmd.Stdin = b.Env, files, bytes.NewReader(pem.EncodeToMemory(block))
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Errorf("with %q it says %s", word, out)
		}
	}
}

// TestE5_RevokedWhileAnSSHConnectionIsMade revokes a session while the key
// exchange with its host hangs: the connection is closed at once, and nothing
// more came over it. The host's side of the wire tells.
func TestE5_RevokedWhileAnSSHConnectionIsMade(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	type seen struct{ last, ended time.Time }
	began, done := make(chan struct{}), make(chan seen, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "SSH-2.0-silent\r\n")
		var w seen
		for buf, first := make([]byte, 4096), true; ; first = false {
			n, err := c.Read(buf)
			if err != nil {
				w.ended = time.Now()
				done <- w
				return
			}
			if w.last = time.Now(); first && n > 0 {
				close(began)
			}
		}
	}()
	server := startSSHServer(t)
	file := fmt.Sprintf("[credential.k]\nkind = \"ssh-key\"\n[host.h]\naddress = %q\nuser = \"hop\"\nkey = \"k\"\nhost_keys = [%q]\n"+
		"[capability.\"ssh:h\"]\nhost = \"h\"\ncommands = [\"hostname\"]\n", l.Addr().String(), server.HostKey)
	b := Start(t, file, "k", string(server.ClientKey))
	c := b.Granted("ssh:h")
	c.asks("ssh:h", map[string]any{"command": "hostname"})
	<-began
	b.manage(wire.MethodSessionRevoke, map[string]any{"session_id": b.Sessions()[0].SessionID}, nil, nil, nil)
	revoked := time.Now()
	w := <-done
	if late := w.last.Sub(revoked); late > 100*time.Millisecond {
		t.Errorf("bytes %s after the revocation", late)
	}
	if late := w.ended.Sub(revoked); late > 100*time.Millisecond {
		t.Errorf("closed %s after the revocation", late)
	}
}
