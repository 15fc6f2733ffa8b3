package yetttest

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// canaries are secrets that must be nowhere but where they belong, with the
// forms in which they could get out.
type canaries map[string][][]byte

// add plants a secret. Forms: as it is, hexadecimal, base64 in both alphabets
// at each of the three alignments, escaped for a URL and for JSON, reversed.
func (c canaries) add(name, secret string) {
	forms := []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
		url.QueryEscape(secret), url.PathEscape(secret), strings.ReplaceAll(url.QueryEscape(secret), "+", "%20")}
	quoted, _ := json.Marshal(secret)
	forms = append(forms, string(quoted[1:len(quoted)-1]))
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			coded := alphabet.EncodeToString(append(make([]byte, offset), secret...))
			forms = append(forms, coded[[]int{0, 2, 3}[offset]:len(coded)-1]) // without what its neighbours decide
		}
	}
	backwards := []byte(secret)
	for i, j := 0, len(backwards)-1; i < j; i, j = i+1, j-1 {
		backwards[i], backwards[j] = backwards[j], backwards[i]
	}
	forms = append(forms, string(backwards))
	for _, f := range forms {
		c[name] = append(c[name], []byte(f))
	}
}

// in names the canaries that stand in b.
func (c canaries) in(b []byte) (found []string) {
	for name, forms := range c {
		for _, f := range forms {
			if bytes.Contains(b, f) {
				found = append(found, fmt.Sprintf("%s as %.12q…", name, f))
				break
			}
		}
	}
	return found
}

func (c canaries) search(t *testing.T, where string, b []byte) {
	t.Helper()
	if found := c.in(b); len(found) > 0 {
		t.Errorf("%s has %s", where, strings.Join(found, ", "))
	}
}

// searchFiles looks into every file under a directory and returns how many
// there were.
func (c canaries) searchFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		names = append(names, d.Name())
		c.search(t, path, b)
		c.search(t, "the name of "+path, []byte(path))
		return nil
	}))
	return names
}

// watchProcesses looks at argv and environment of every process of this account
// until stop is called, which returns what was seen, or the test ends. It opens nothing else of
// them: who opens the pipe of a yett-mcp ends it.
func watchProcesses(t *testing.T) (stop func() []byte) {
	var seen bytes.Buffer
	known := map[string]bool{}
	look := func() {
		for _, name := range []string{"cmdline", "environ"} {
			paths, _ := filepath.Glob("/proc/[0-9]*/" + name)
			for _, p := range paths {
				if b, err := os.ReadFile(p); err == nil && !known[p+string(b)] {
					known[p+string(b)] = true
					seen.Write(append(b, '\n'))
				}
			}
		}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			look()
			select {
			case <-end:
				return
			case <-t.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() []byte {
		close(end)
		<-ended
		return seen.Bytes()
	}
}

func randomText(t *testing.T) string {
	t.Helper()
	b := make([]byte, 15)
	_, err := rand.Read(b)
	must(t, err)
	return base64.StdEncoding.EncodeToString(b)
}

type canaryRun struct {
	t          *testing.T
	b          *Broker
	passphrase string
	recovery   string
	token      string
	sshd       sshdAt
	printed    buffer
	agent      *host
}

// command runs yett with a passphrase on descriptor 3, and keeps everything that
// it prints. init gives the recovery code on descriptor 4.
func (r *canaryRun) command(stdin, passphrase string, args ...string) (stdout string, code int) {
	r.t.Helper()
	c := exec.Command(Command(args...), append(args, "--home", r.b.Home, "--passphrase-fd", "3")...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	pr, pw, err := os.Pipe()
	must(r.t, err)
	defer pr.Close()
	fmt.Fprintln(pw, passphrase)
	pw.Close()
	c.ExtraFiles = []*os.File{pr}
	if args[0] == "init" {
		rr, rw, err := os.Pipe()
		must(r.t, err)
		defer rr.Close()
		c.ExtraFiles = append(c.ExtraFiles, rw)
		c.Args = append(c.Args, "--recovery-fd", "4")
		must(r.t, c.Run())
		rw.Close()
		code, err := io.ReadAll(rr)
		must(r.t, err)
		r.recovery = strings.TrimSpace(string(code))
	} else if err := c.Run(); err != nil && c.ProcessState == nil {
		r.t.Fatal(err)
	}
	r.printed.Write(out.Bytes())
	r.printed.Write(errs.Bytes())
	return out.String(), c.ProcessState.ExitCode()
}

func (r *canaryRun) must(args ...string) string {
	r.t.Helper()
	out, code := r.command("", r.passphrase, args...)
	if code != 0 {
		r.t.Fatalf("yett %v: exit %d\n%s", args, code, r.printed.String())
	}
	return out
}

// TestCanary: the whole job, with what goes wrong in it, and then no secret
// anywhere: not in what agent and person were told, not in what any process
// printed, not in a file, not in the arguments or environment of a process.
func TestCanary(t *testing.T) {
	r := &canaryRun{t: t, passphrase: "correct horse " + randomText(t), token: "tok+/" + randomText(t), sshd: reachableSSHD(t)}
	secrets := canaries{}
	secrets.add("the passphrase", r.passphrase)
	secrets.add("the token", r.token)
	for i, line := range strings.Split(strings.TrimSpace(string(r.sshd.ClientKey)), "\n") {
		if len(line) > 40 && !strings.HasPrefix(line, "-") && i > 1 { // the first line of each such key is the same
			secrets.add(fmt.Sprintf("line %d of the private key", i), line)
		}
	}
	searchFindsWhatIsPlanted(t, secrets)

	stop := watchProcesses(t)
	dir, err := os.MkdirTemp("", "y")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.b = &Broker{T: t, Home: filepath.Join(dir, "h"), log: &buffer{}}
	t.Cleanup(r.b.Kill)
	up := r.upstream()
	r.command("", r.passphrase, "init")
	if len(r.recovery) < 20 {
		t.Fatalf("the recovery code is %q", r.recovery)
	}
	secrets.add("the recovery code", r.recovery)
	r.job(up)
	r.must("audit", "export", "--full")
	r.must("audit", "export", "--full", "--format", "csv")
	r.must("audit", "prove", "1")
	r.must("vault", "backup", filepath.Join(dir, "backup"))
	files := secrets.searchFiles(t, dir) // while the broker runs, with its write-ahead log
	r.crash()
	files = append(files, secrets.searchFiles(t, r.b.Home)...)
	processes := stop()

	for _, want := range []string{"vault.yett", "backup", "ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.journal", "ledger.head", "ledger.pub"} {
		if !strings.Contains(strings.Join(files, " ")+" ", want+" ") {
			t.Errorf("%s was not among the files %v", want, files)
		}
	}
	for what, part := range map[string]string{"the previous generation of the vault": ".prev", "the body of an answer": ".body"} {
		if !slices.ContainsFunc(files, func(name string) bool { return strings.Contains(name, part) }) {
			t.Errorf("%s was not among the files %v", what, files)
		}
	}
	for _, want := range []string{"serve\x00--home\x00" + r.b.Home, "yett-mcp\x00--home\x00" + r.b.Home, "approve\x00", "secret\x00set\x00", "GORACE="} {
		if !bytes.Contains(processes, []byte(want)) {
			t.Errorf("no process with %q was seen", want)
		}
	}
	secrets.search(t, "the arguments or environment of a process", processes)
	secrets.search(t, "what the commands printed", []byte(r.printed.String()))
	secrets.search(t, "what the broker printed", []byte(r.b.log.String()))
	secrets.search(t, "what yett-mcp printed", []byte(r.agent.stderr.String()))
	r.agent.mu.Lock()
	defer r.agent.mu.Unlock()
	secrets.search(t, "what the agent was told", bytes.Join(r.agent.lines, nil))
	if !bytes.Contains(bytes.Join(r.agent.lines, nil), []byte("redacted by yett")) {
		t.Error("no echo was replaced: the upstream did not try")
	}
}

// upstream wants the token, and gives it back in every way if asked.
func (r *canaryRun) upstream() *Upstream {
	return StartUpstreamFunc(r.t, func(w http.ResponseWriter, q *http.Request) {
		auth := q.Header.Get("Authorization")
		if auth != "Bearer "+r.token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch q.URL.Path {
		case "/v1/echo":
			w.Header().Set("Authorization", auth)
			w.Header().Set("X-Echo", auth)
			w.Header().Set("Set-Cookie", "t="+r.token)
			fmt.Fprintf(w, "%s\n%s\n%s\n%s\n%x\n", auth, url.QueryEscape(r.token), base64.StdEncoding.EncodeToString([]byte(r.token)),
				base64.URLEncoding.EncodeToString([]byte(r.token)), r.token)
			json.NewEncoder(w).Encode(q.Header)
		case "/v1/fail":
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "cannot handle %s", auth)
		case "/v1/move":
			http.Redirect(w, q, "/v1/else?token="+url.QueryEscape(r.token), http.StatusFound)
		case "/v1/cut":
			w.Header().Set("Content-Length", "10000")
			fmt.Fprint(w, auth)
			panic(http.ErrAbortHandler)
		case "/v1/hang":
			<-q.Context().Done()
		}
	})
}

// job does everything once, and most of it wrong once.
func (r *canaryRun) job(up *Upstream) {
	r.t.Helper()
	r.b.Serve()
	if _, code := r.command("", "wrong "+randomText(r.t), "unlock"); code != 3 {
		r.t.Errorf("a wrong passphrase: exit %d", code)
	}
	r.must("unlock")
	access := filepath.Join(r.t.TempDir(), "access.toml")
	must(r.t, os.WriteFile(access, []byte(up.Access()+sshAccess(r.sshd)), 0o600))
	r.must("apply", access)
	for name, value := range map[string]string{"demo": r.token, "key": string(r.sshd.ClientKey)} {
		if _, code := r.command(value, r.passphrase, "secret", "set", name); code != 0 {
			r.t.Fatalf("secret set %s: %d\n%s", name, code, r.printed.String())
		}
	}
	r.command(r.token, r.passphrase, "secret", "set", "demo") // refused: there is a value
	r.must("secret", "list", "--json")
	r.agent = r.b.startShim().ready()
	r.approve(`["http:demo.read","http:demo.write","ssh:web.status"]`)
	call := func(name, arguments string) said { return r.agent.call(name, arguments) }
	call("list_access", "{}")
	for _, path := range []string{"echo", "fail", "move", "cut", "none"} {
		call("http_request", fmt.Sprintf(`{"capability":"http:demo.read","method":"GET","path":"/v1/%s"}`, path))
	}
	call("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/x","headers":{"Authorization":"Bearer x"}}`)
	call("ssh_run", `{"capability":"ssh:web.status","command":"echo hello"}`).wants(r.t, "hello")
	call("ssh_run", `{"capability":"ssh:web.status","command":"cat /nowhere"}`)
	call("http_request", `{"capability":"http:demo.write","method":"POST","path":"/v1/hang","wait_ms":20}`).wants(r.t, "executing: ")
	r.must("activity", "--json")
	r.must("sessions", "--json")
	r.must("status", "--json")
}

// approve asks for capabilities and approves them at the command line.
func (r *canaryRun) approve(capabilities string) {
	r.t.Helper()
	asked := r.agent.call("request_access", fmt.Sprintf(`{"capabilities":%s,"wait_ms":0}`, capabilities)).session(r.t)
	var cards []Card
	must(r.t, json.Unmarshal([]byte(r.must("pending", "--json")), &cards))
	if len(cards) != 1 || cards[0].ApprovalID != asked.Pending.ApprovalID {
		r.t.Fatalf("cards: %+v", cards)
	}
	r.must("approve", cards[0].ApprovalID, "--digest", cards[0].CardDigest, "--for", "1h")
	r.agent.call("request_access", fmt.Sprintf(`{"capabilities":%s}`, capabilities)).wants(r.t, "granted: ")
}

// crash kills the broker in the middle of an action, and goes on.
func (r *canaryRun) crash() {
	r.t.Helper()
	r.b.Kill()
	r.b.Serve()
	r.must("unlock")
	r.agent.call("list_access", "{}").wants(r.t, "This is a new session")
	r.must("activity", "--json")
	r.command("", r.passphrase, "audit", "verify", "--json")
	r.b.Stop()
	r.agent.in.Close()
	r.agent.gone()
	r.agent.closed()
}

// searchFindsWhatIsPlanted: a search that finds nothing would be no test.
func searchFindsWhatIsPlanted(t *testing.T, secrets canaries) {
	t.Helper()
	if len(secrets) < 4 {
		t.Fatalf("%d canaries: the private key has no lines", len(secrets))
	}
	for name, forms := range secrets {
		for _, f := range forms {
			if len(f) < 12 {
				t.Errorf("%s: the form %q is too short to mean anything", name, f)
			}
			if found := secrets.in(append(append([]byte("before "), f...), " after"...)); len(found) == 0 {
				t.Errorf("%s: the form %.12q… is not found", name, f)
			}
		}
	}
	for offset := range 4 { // base64 of something longer, at any alignment
		blob := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + string(secrets["the token"][0]) + "yyy"))
		if len(secrets.in([]byte(blob))) == 0 {
			t.Errorf("the token in base64 behind %d bytes is not found", offset)
		}
	}
	if found := secrets.in([]byte("a page without any of them")); len(found) > 0 {
		t.Errorf("found %v in nothing", found)
	}
}
