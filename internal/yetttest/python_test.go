package yetttest

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/docs/vectors"
)

// A second client, in Python and without a library, written by
// docs/protocol.md: what only Go can do would show here.

//go:embed python/*.py
var pythonFiles embed.FS

// python prepares a program of the Python client; the account of the tests
// cannot read the source tree.
func python(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	program := "/usr/bin/python3" // not what a version manager of root's puts first
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("python3"); err != nil {
			t.Fatalf("%v: install python3", err)
		}
	}
	dir := t.TempDir()
	unpack(t, pythonFiles, "python", dir)
	c := exec.Command(program, append([]string{"-B", "-E", "-s", filepath.Join(dir, script)}, args...)...)
	c.Stderr = os.Stderr
	return c
}

// unpack writes embedded files into a directory.
func unpack(t *testing.T, from embed.FS, under, dir string) {
	t.Helper()
	entries, err := from.ReadDir(under)
	must(t, err)
	for _, e := range entries {
		text, err := from.ReadFile(path.Join(under, e.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, e.Name()), text, 0o644))
	}
}

// TestPythonClientChecks attacks the client's checks of the broker.
func TestPythonClientChecks(t *testing.T) {
	c := python(t, "test_checks.py", "-v")
	var out bytes.Buffer
	c.Stderr = &out
	if err := c.Run(); err != nil || strings.Count(out.String(), "... ok") < 13 {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestPythonClientJob: a native program in Python asks, a person approves, it
// acts, asks what came of it and reads the body.
func TestPythonClientJob(t *testing.T) {
	up := StartUpstream(t, canary)
	b := Start(t, up.Access(), "demo", canary)
	c := python(t, "job.py", b.Home, Bin("yett"))
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	limit := time.AfterFunc(Patience, func() { c.Process.Kill() })
	defer limit.Stop()
	var got bytes.Buffer
	dec := json.NewDecoder(io.TeeReader(out, &got))
	next := func(step string, value any) {
		t.Helper()
		var s struct {
			Step  string          `json:"step"`
			Value json.RawMessage `json:"value"`
		}
		if err := dec.Decode(&s); err != nil || s.Step != step {
			t.Fatalf("waiting for %q: %v, %q", step, err, s.Step)
		}
		must(t, json.Unmarshal(s.Value, value))
	}
	var state struct {
		State        string   `json:"state"`
		Capabilities []string `json:"capabilities"`
		Pending      *struct {
			ApprovalID string `json:"approval_id"`
			Tag        string `json:"tag"`
		} `json:"pending"`
	}
	next("open", &state)
	if state.State != "active" || state.Pending != nil {
		t.Errorf("opened: %+v", state)
	}
	next("asked", &state)
	card := b.WaitCard()
	if state.Pending == nil || state.Pending.ApprovalID != card.ApprovalID || !strings.Contains(string(card.Card), `"`+state.Pending.Tag+`"`) ||
		!strings.Contains(string(card.Card), "python-job") || len(up.Seen()) != 0 {
		t.Errorf("asked: %+v\n%s\n%q", state, card.Card, up.Seen())
	}
	b.Approve(card, "--for", "1h")
	next("decided", &state)
	if len(state.Capabilities) != 1 {
		t.Errorf("decided: %+v", state)
	}
	var op Operation
	next("began", &op)
	next("done", &op)
	var body string
	next("body", &body)
	if op.State != "completed" || body != `{"path":"/v1/a"}` || len(up.Seen()) != 1 {
		t.Errorf("done: %+v %q %q", op, body, up.Seen())
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if bytes.Contains(got.Bytes(), []byte(canary)) {
		t.Error("the client got the secret")
	}
}

// pythonRunner drives the Python runner of the vectors: it does for it what the
// person, the upstream and the ledger have to do.
type pythonRunner struct {
	in   io.Writer
	out  *bufio.Reader
	kill func()
}

type pythonSays struct {
	Done *string `json:"done"`
	Ask  *struct {
		Person   string            `json:"person"`
		Values   map[string]string `json:"values"`
		Upstream []string          `json:"upstream"`
		Release  bool              `json:"release"`
		Row      json.RawMessage   `json:"row"`
	} `json:"ask"`
}

func (p *pythonRunner) say(t *testing.T, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	_, err = p.in.Write(append(raw, '\n'))
	must(t, err)
}

func (p *pythonRunner) run(t *testing.T, r *running, file string, index int) {
	t.Helper()
	limit := time.AfterFunc(2*Patience, p.kill)
	defer limit.Stop()
	p.say(t, map[string]any{"file": file, "index": index})
	for {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the runner went away: %v", err)
		}
		var s pythonSays
		must(t, json.Unmarshal(line, &s))
		switch {
		case s.Ask == nil:
			if s.Done != nil {
				t.Error(*s.Done)
			}
			return
		case s.Ask.Person != "":
			r.vars = s.Ask.Values
			r.w.person.do(r, "the Python client", s.Ask.Person)
		case s.Ask.Upstream != nil:
			r.upstream("the Python client", s.Ask.Upstream)
		case s.Ask.Release:
			r.w.held.release()
		case s.Ask.Row != nil:
			r.row("the Python client", step{Row: s.Ask.Row})
		}
		p.say(t, map[string]any{"wrong": nil})
	}
}

// TestPythonClientVectors runs every vector by the Python client.
func TestPythonClientVectors(t *testing.T) {
	h := &holding{open: make(chan struct{})}
	up := StartUpstreamFunc(t, h.upstream)
	t.Cleanup(h.release)
	access, err := vectors.Files.ReadFile("access.toml")
	must(t, err)
	b := Start(t, strings.ReplaceAll(string(access), "${upstream}", up.URL), "demo", canary)
	w := &world{b: b, up: up, held: h, person: newPerson(b)}

	dir, came := t.TempDir(), filepath.Join(t.TempDir(), "came")
	unpack(t, vectors.Files, ".", dir)
	c := python(t, "vectors.py", dir, b.Home, Bin("yett"), came)
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		in.Close()
		c.Process.Kill()
		c.Wait()
	})
	p := &pythonRunner{in: in, out: bufio.NewReader(out), kill: func() { c.Process.Kill() }}

	ran := 0
	entries, err := vectors.Files.ReadDir(".")
	must(t, err)
	for _, e := range entries {
		if path.Ext(e.Name()) != ".json" || e.Name() == "begin.json" {
			continue
		}
		var f vectorFile
		decodeStrict(t, e.Name(), &f)
		for i, v := range f.Vectors {
			ran++
			t.Run(strings.TrimSuffix(e.Name(), ".json")+"/"+v.Name, func(t *testing.T) {
				r := &running{t: t, w: w, seen: len(up.Seen())}
				b.T = t
				defer func() {
					w.person.restore(t)
					b.T = w.person.root
				}()
				p.run(t, r, e.Name(), i)
			})
		}
	}
	if ran < 150 {
		t.Errorf("only %d vectors ran", ran)
	}
	got, err := os.ReadFile(came)
	must(t, err)
	if len(got) < 10_000 {
		t.Errorf("only %d bytes came", len(got))
	}
	for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), hex.EncodeToString([]byte(canary)), "\u2028", "\u2029"} {
		if bytes.Contains(got, []byte(form)) {
			t.Errorf("%+q stands in what came", form)
		}
	}
}
