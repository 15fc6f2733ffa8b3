package trial

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yett-broker/yett/internal/endpoint"
)

// agentOrder is a line that the agent of a demonstration obeys.
type agentOrder struct {
	Do        string         `json:"do"` // connect or call
	Tool      string         `json:"tool,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
}

// agentReport is what came of it.
type agentReport struct {
	Error    string   `json:"error,omitempty"` // the call itself failed
	IsError  bool     `json:"is_error,omitempty"`
	Headline string   `json:"headline,omitempty"` // the first line that is about the call
	Text     string   `json:"text,omitempty"`     // everything that a tool said
	Tools    []string `json:"tools,omitempty"`
	PID      int      `json:"pid,omitempty"`
}

// code is the first word of a refusal.
func (r agentReport) code() string {
	code, _, _ := strings.Cut(r.Headline, ":")
	return code
}

func (r agentReport) refusedBecause(code string) bool { return r.IsError && r.code() == code }

// gist is the headline without the operation's id and advice for the agent.
func (r agentReport) gist() string {
	s, _, _ := strings.Cut(r.Headline, " Next: ")
	s, _, _ = strings.Cut(s, " (operation ")
	return strings.TrimSuffix(s, ".")
}

// after returns what a result shows of a body: what stands behind the line
// that names it.
func (r agentReport) after(name string) string {
	_, text, _ := strings.Cut(r.Text, "\n"+name)
	_, text, _ = strings.Cut(text, "\n")
	return text
}

// ErrNotStarted is returned where an agent was not started by a demonstration.
var ErrNotStarted = errors.New("the demonstration did not start this process")

// Agent is the agent of the demonstration, in a process of its own. It starts
// yett-mcp as MCP hosts do, over pipes, and speaks to it with the MCP SDK. Every
// byte that it receives from it is copied to descriptor 3.
func Agent(ctx context.Context, home, version string, in io.Reader, out io.Writer) error {
	syscall.CloseOnExec(3)
	mirror := os.NewFile(3, "mirror")
	if _, err := mirror.Stat(); err != nil {
		return ErrNotStarted
	}
	defer mirror.Close()
	agent := &tryHost{mirror: mirror, version: version}
	defer agent.stop()
	return obey(ctx, in, out, func(o agentOrder) agentReport {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var r agentReport
		var err error
		switch o.Do {
		case "connect":
			r, err = agent.connect(ctx, home)
		case "call":
			r, err = agent.call(ctx, o)
		default:
			err = fmt.Errorf("unknown order %q", o.Do)
		}
		if err != nil {
			r.Error = err.Error()
		}
		return r
	})
}

// obey answers each line of orders with a line until they end.
func obey[O, R any](ctx context.Context, in io.Reader, out io.Writer, do func(O) R) error {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadString('\n')
		if err != nil || ctx.Err() != nil {
			return nil
		}
		var o O
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			return fmt.Errorf("reading an order: %w", err)
		}
		if err := json.NewEncoder(out).Encode(do(o)); err != nil {
			return fmt.Errorf("writing a report: %w", err)
		}
	}
}

// tryHost is an MCP host with one server.
type tryHost struct {
	version string
	mirror  io.Writer
	shim    *exec.Cmd
	session *mcp.ClientSession
}

func (h *tryHost) connect(ctx context.Context, home string) (agentReport, error) {
	path, _, _, err := endpoint.Installed("yett-mcp")
	if err != nil {
		return agentReport{}, err
	}
	h.shim = exec.Command(path, "--home", home)
	h.shim.Stderr = struct{ io.Writer }{h.mirror}
	stdin, err := h.shim.StdinPipe()
	if err != nil {
		return agentReport{}, err
	}
	stdout, err := h.shim.StdoutPipe()
	if err != nil {
		return agentReport{}, err
	}
	if err := h.shim.Start(); err != nil {
		h.shim = nil
		return agentReport{}, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "demo-agent", Version: h.version}, nil)
	h.session, err = client.Connect(ctx, &mcp.IOTransport{Reader: tee{io.TeeReader(stdout, h.mirror), stdout}, Writer: stdin}, nil)
	if err != nil {
		return agentReport{}, err
	}
	r := agentReport{PID: h.shim.Process.Pid, Text: h.session.InitializeResult().ProtocolVersion}
	for tool, err := range h.session.Tools(ctx, nil) {
		if err != nil {
			return r, err
		}
		r.Tools = append(r.Tools, tool.Name)
	}
	return r, nil
}

// tee is a reader that copies, over something that can be closed.
type tee struct {
	io.Reader
	io.Closer
}

func (h *tryHost) call(ctx context.Context, o agentOrder) (agentReport, error) {
	if h.session == nil {
		return agentReport{}, errors.New("not connected")
	}
	if o.Arguments == nil {
		o.Arguments = map[string]any{}
	}
	result, err := h.session.CallTool(ctx, &mcp.CallToolParams{Name: o.Tool, Arguments: o.Arguments})
	if err != nil {
		return agentReport{}, err
	}
	r := agentReport{IsError: result.IsError}
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			r.Text += text.Text + "\n"
		}
	}
	for line := range strings.Lines(r.Text) {
		if r.Headline = strings.TrimSpace(line); !strings.HasPrefix(line, "[") { // the note that this is a test broker
			break
		}
	}
	return r, nil
}

// stop ends the MCP server as a host should: by closing its standard input.
func (h *tryHost) stop() {
	if h.session != nil {
		h.session.Close()
	}
	if h.shim == nil {
		return
	}
	timer := time.AfterFunc(3*time.Second, func() { h.shim.Process.Kill() })
	defer timer.Stop()
	h.shim.Wait()
}
