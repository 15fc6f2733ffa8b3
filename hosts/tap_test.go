//go:build hosts && linux

package hosts

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// tapArgument makes the test program a tap: FILE COMMAND [ARGUMENT...].
const tapArgument = "tap"

// tap starts a server, passes lines both ways, and keeps in FILE what the host
// sent. The host is told nothing of it; only yett-mcp has another parent.
func tap(args []string) int {
	log, err := os.Create(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tap:", err)
		return 1
	}
	c := exec.Command(args[1], args[2:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tap:", err)
		return 1
	}
	io.Copy(in, io.TeeReader(os.Stdin, log))
	in.Close()
	c.Wait()
	return 0
}

// said is one message of a host.
type said struct {
	Method string
	Params struct {
		ProtocolVersion string
		ClientInfo      struct{ Name, Version string }
		Capabilities    json.RawMessage
		Meta            map[string]json.RawMessage `json:"_meta"`
	}
}

// version is the protocol version that a message names, in either way.
func (s said) version() string {
	if s.Params.ProtocolVersion != "" {
		return s.Params.ProtocolVersion
	}
	var v string
	json.Unmarshal(s.Params.Meta["io.modelcontextprotocol/protocolVersion"], &v)
	return v
}

// tapped returns the command of a tap before yett-mcp and what reads its log.
func tapped(t *testing.T, command []string) (with []string, heard func() []said) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "said")
	return append([]string{self, tapArgument, file}, command...), func() []said {
		f, err := os.Open(file)
		if err != nil {
			t.Fatalf("the host did not start its server: %v", err)
		}
		defer f.Close()
		var all []said
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			var s said
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				t.Errorf("the host said %q: %v", lines.Bytes(), err)
			}
			all = append(all, s)
		}
		return all
	}
}
