package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// shimAgent is an agent with its yett-mcp.
type shimAgent struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

// readThroughShim lets an agent ask for a body and read all of it, and returns
// the most KiB that its yett-mcp had resident.
func (b *bench) readThroughShim(asked, size int64) (int, error) {
	s := &shimAgent{cmd: exec.Command(filepath.Join(b.bin, "yett-mcp"), "--home", b.home)}
	s.cmd.Stderr = os.Stderr
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return 0, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return 0, err
	}
	defer s.cmd.Wait()
	defer s.in.Close()
	if err := s.begin(b); err != nil {
		return 0, err
	}
	said, err := s.tool("http_request", map[string]any{"capability": "http:up.read", "method": "GET", "path": sizedPath(asked), "wait_ms": 30_000})
	if err != nil {
		return 0, err
	}
	if size > 64<<10 { // else the body stands in the answer
		ref := regexp.MustCompile(`body_ref \\?"(activity:[0-9]+)`).FindStringSubmatch(said)
		if ref == nil {
			return 0, fmt.Errorf("there is no body to read: %.300s", said)
		}
		if err := s.readAll(ref[1], size); err != nil {
			return 0, err
		}
	}
	return peakResident(s.cmd.Process.Pid)
}

// begin initializes and is granted what the measurement needs.
func (s *shimAgent) begin(b *bench) error {
	if _, err := io.WriteString(s.in, initialize+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		return err
	}
	if _, err := s.out.ReadString('\n'); err != nil {
		return err
	}
	s.id = 1
	if _, err := s.tool("request_access", map[string]any{"capabilities": []string{"http:up.read"}, "wait_ms": 0}); err != nil {
		return err
	}
	return b.approveCard()
}

// tool calls a tool and returns its text.
func (s *shimAgent) tool(name string, arguments map[string]any) (string, error) {
	s.id++
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.id, "method": "tools/call",
		"params": map[string]any{"name": name, "arguments": arguments}})
	if err != nil {
		return "", err
	}
	if _, err := s.in.Write(append(request, '\n')); err != nil {
		return "", err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	var reply struct {
		Result struct {
			IsError bool `json:"isError"`
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return "", err
	}
	var all strings.Builder
	for _, c := range reply.Result.Content {
		all.WriteString(c.Text + "\n")
	}
	if reply.Result.IsError || all.Len() == 0 {
		return "", fmt.Errorf("%s: %.300s", name, line)
	}
	return all.String(), nil
}

var nextOffset = regexp.MustCompile(`Next: read_result with offset ([0-9]+)`)

// readAll follows read_result to the end of a body.
func (s *shimAgent) readAll(ref string, size int64) error {
	for offset := int64(0); ; {
		said, err := s.tool("read_result", map[string]any{"body_ref": ref, "offset": offset, "limit": 512 << 10})
		if err != nil {
			return err
		}
		next := nextOffset.FindStringSubmatch(said[:min(len(said), 500)])
		if next == nil {
			if !strings.Contains(said[:min(len(said), 500)], fmt.Sprintf("to %d of %d", size, size)) {
				return fmt.Errorf("the body ended early: %.300s", said)
			}
			return nil
		}
		if offset, err = strconv.ParseInt(next[1], 10, 64); err != nil {
			return err
		}
	}
}

// peakResident is VmHWM of a process in KiB.
func peakResident(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		}
	}
	return 0, errors.New("no VmHWM")
}
