//go:build hosts && linux

package hosts

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/hosts/standin"
	"github.com/yett-broker/yett/internal/yetttest"
)

// lifetime bounds one run of a host.
var lifetime = 150 * time.Second

// host is a program that people run agents in. command returns how it is
// started on its task, after configure wrote what a person writes into home
// once: the address of the model, and the command that starts yett-mcp.
type host struct {
	name      string // of its golden files
	configure func(t *testing.T, home, model string, server []string) (command, env []string)
}

// task is what the agent is told; the stand-in decides what it does.
const task = "Read the invoices through Yett."

var all = []host{
	{"claude-code", claudeCode},
	{"codex", codex},
	{"gemini-cli", geminiCLI},
}

// claudeCode is the native program, which npm would link as claude.
func claudeCode(t *testing.T, home, model string, server []string) (command, env []string) {
	config := filepath.Join(home, "mcp.json")
	writeJSON(t, config, map[string]any{"mcpServers": map[string]any{"yett": map[string]any{
		"type": "stdio", "command": server[0], "args": server[1:]}}})
	return []string{filepath.Join(modules(), "@anthropic-ai", "claude-code-linux-"+npmArch(), "claude"), "-p", task,
			"--strict-mcp-config", "--mcp-config", config, "--allowedTools", "mcp__yett"},
		[]string{"ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_API_KEY=no-key", "ENABLE_TOOL_SEARCH=false",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
}

// codex is the launcher on Node that npm links as codex.
func codex(t *testing.T, home, model string, server []string) (command, env []string) {
	must(t, os.Mkdir(filepath.Join(home, ".codex"), 0o700))
	config := "model = \"gpt-5\"\nmodel_provider = \"standin\"\n\n" +
		"[model_providers.standin]\nname = \"standin\"\nbase_url = " + quoted(model+"/v1") + "\nwire_api = \"responses\"\n\n" +
		"[mcp_servers.yett]\ncommand = " + quoted(server[0]) + "\nargs = " + quoted(server[1:]) + "\ndefault_tools_approval_mode = \"approve\"\n"
	must(t, os.WriteFile(filepath.Join(home, ".codex", "config.toml"), []byte(config), 0o600))
	return []string{node(), filepath.Join(modules(), "@openai", "codex", "bin", "codex.js"),
		"exec", "--skip-git-repo-check", task}, nil
}

// geminiCLI is the bundle that npm links as gemini.
func geminiCLI(t *testing.T, home, model string, server []string) (command, env []string) {
	must(t, os.Mkdir(filepath.Join(home, ".gemini"), 0o700))
	writeJSON(t, filepath.Join(home, ".gemini", "settings.json"), map[string]any{
		"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"privacy":    map[string]any{"usageStatisticsEnabled": false},
		"mcpServers": map[string]any{"yett": map[string]any{"command": server[0], "args": server[1:], "trust": true}}})
	return []string{node(), filepath.Join(modules(), "@google", "gemini-cli", "bundle", "gemini.js"), "-m", "gemini-2.5-pro", "-p", task},
		[]string{"GOOGLE_GEMINI_BASE_URL=" + model, "GEMINI_API_KEY=no-key", "GEMINI_CLI_TRUST_WORKSPACE=true"}
}

// running is a host at work.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	home  string
	model *standin.Model
	out   *output
	done  chan struct{}
}

// start runs a host with a model that plays a script. server is the command
// that it is configured to start.
func (h host) start(t *testing.T, server []string, script ...standin.Call) *running {
	t.Helper()
	home := t.TempDir()
	model := standin.New(script...)
	at := httptest.NewServer(model)
	t.Cleanup(at.Close)
	command, env := h.configure(t, home, at.URL, server)
	r := launch(t, home, command, env)
	r.model = model
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("of Yett %s offered %v", h.name, model.Offered())
		}
	})
	return r
}

// launch runs a command in a home of its own.
func launch(t *testing.T, home string, command, env []string) *running {
	t.Helper()
	r := &running{t: t, home: home, out: &output{}, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	r.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	r.cmd.Dir = filepath.Join(home, "project")
	must(t, os.Mkdir(r.cmd.Dir, 0o700))
	r.cmd.Env = append(surroundings(home), env...)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, wherever the tests run
	r.cmd.Cancel = func() error { return syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }
	r.cmd.WaitDelay = 5 * time.Second
	must(t, r.cmd.Start())
	go func() {
		r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
		if t.Failed() {
			t.Logf("%s printed:\n%.6000s", command, r.out.bytes())
		}
	})
	return r
}

// surroundings is the whole environment of a host but what it needs for its
// model: nothing of the tests' own gets in.
func surroundings(home string) []string {
	env := []string{"HOME=" + home, "PATH=" + filepath.Dir(node()) + ":/usr/local/bin:/usr/bin:/bin", "TMPDIR=" + home, "LANG=C.UTF-8"}
	if os.Getenv(envOffline) == "" {
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
			env = append(env, name+"=http://127.0.0.1:9")
		}
		env = append(env, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
	}
	return env
}

// ends waits for the end of the host, which must be a good one.
func (r *running) ends() {
	r.t.Helper()
	<-r.done
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Errorf("the host ended with %d", code)
	}
}

// results waits for the end and returns what the model was told by its tools.
func (r *running) results(n int) []standin.Result {
	r.t.Helper()
	r.ends()
	got := r.model.Results()
	if len(got) != n {
		r.t.Fatalf("%d results reached the model, want %d: %+v", len(got), n, got)
	}
	return got
}

// output keeps what a host prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.b.Bytes())
}

// yettMCP is the command of the server that a person enters.
func yettMCP(b *yetttest.Broker) []string {
	return []string{yetttest.Bin("yett-mcp"), "--home", b.Home}
}

// quoted is a string or a list of them as TOML; JSON's spelling is the same.
func quoted(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(quoted(v)), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
