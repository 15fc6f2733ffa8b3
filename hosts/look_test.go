//go:build hosts && linux

package hosts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/yetttest"
)

// sight is what was seen of a host at work, while its card waited.
type sight struct {
	names   names
	session string

	pids    []int    // from the started process to yett-mcp
	chain   []string // their programs
	agent   int      // which of them the card names, from 0
	stdin   string   // pipe or socket
	claims  string   // what the host says it is
	words   []string
	offered []string
}

// look sees what /proc and the broker say of a host whose card waits.
func look(t *testing.T, b *yetttest.Broker, r *running, card yetttest.Card) sight {
	t.Helper()
	var c approval.Card
	must(t, json.Unmarshal(card.Card, &c))
	if c.Verified.Shim == nil {
		t.Fatalf("the card has no shim: %s", card.Card)
	}
	s := sight{names: nameValues(b, r, c), session: session(t, b).SessionID, words: c.Verified.Words, agent: -1,
		claims: c.Claimed.Labels["client_name"] + " " + c.Claimed.Labels["client_version"]}
	switch agent := c.Verified.Agent; {
	case agent.Filesystem.NotHashed != "":
		t.Logf("the card has no digest of %s: %s", agent.Kernel.ExePath, agent.Filesystem.NotHashed)
	case agent.Filesystem.SHA256 != digest(t, agent.Kernel.ExePath):
		t.Errorf("the card has the digest %s for %s", agent.Filesystem.SHA256, agent.Kernel.ExePath)
	}
	shim := c.Verified.Shim.Kernel.PID
	s.stdin = kind(t, shim, 0)
	for pid := shim; pid != os.Getpid(); pid = parent(t, pid) {
		if pid <= 1 {
			t.Fatalf("process %d of yett-mcp does not lead to the test", shim)
		}
		s.pids = append([]int{pid}, s.pids...)
	}
	for i, pid := range s.pids {
		s.chain = append(s.chain, program(t, pid))
		if pid == c.Verified.Agent.Kernel.PID {
			s.agent = i
		}
	}
	if s.agent != len(s.pids)-2 {
		t.Fatalf("the card names process %d of %v, which is not what started yett-mcp", c.Verified.Agent.Kernel.PID, s.pids)
	}
	return s
}

// String is the golden form.
func (s sight) String() string {
	words := "none"
	if len(s.words) > 0 {
		words = strings.Join(s.words, "; ")
	}
	text := fmt.Sprintf("processes       %s\nagent           %s\nstandard input  %s\nclient          %s\nwords           %s\n",
		strings.Join(s.chain, " → "), s.chain[s.agent], s.stdin, s.claims, words)
	for _, tool := range s.offered {
		text += "tool            " + tool + "\n"
	}
	return text
}

// digest is the SHA-256 of a file.
func digest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// kind is what a descriptor leads to.
func kind(t *testing.T, pid, fd int) string {
	t.Helper()
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	must(t, err)
	k, _, _ := strings.Cut(target, ":")
	return k
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	after := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ppid, err := strconv.Atoi(after[1])
	must(t, err)
	return ppid
}

// program is how people would call a process: its file, or its first argument
// where the kernel hides the file; and the script if that is a runtime.
func program(t *testing.T, pid int) string {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	must(t, err)
	argv := strings.Split(string(line), "\x00")
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		exe = argv[0]
	}
	name := filepath.Base(exe)
	if name != "node" {
		return name
	}
	for _, a := range argv[1:] {
		if strings.HasSuffix(a, ".js") || strings.HasSuffix(a, ".mjs") {
			return name + " " + filepath.Base(a)
		}
	}
	return name
}
