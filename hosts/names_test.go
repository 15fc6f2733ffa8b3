//go:build hosts && linux

package hosts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/yetttest"
)

// names replaces what differs from run to run, and from machine to machine, by
// a name in angle brackets.
type names struct{ texts *strings.Replacer }

// changing are the members of a card whose values are named whole.
var changing = map[string]bool{
	"approval_id": true, "broker_instance": true, "tag": true, "expires_at": true, "longest_end": true, "channel_id": true,
	"pid": true, "ppid": true, "pidfs_inode": true, "start_ticks": true, "boot_id": true, "uid": true, "gid": true, "cgroup": true,
	"exe_device": true, "exe_inode": true, "size": true, "owner": true, "sha256": true,
}

// nameValues collects the values of one run.
func nameValues(b *yetttest.Broker, r *running, c approval.Card, digest string) names {
	agent, shim := c.Verified.Agent, c.Verified.Shim
	pairs := []string{
		digest, "<card digest>", c.ApprovalID, "<approval_id>", c.Tag, "<tag>", strings.ToUpper(c.Tag), "<TAG>",
		modules(), "<modules>", b.Home, "<broker home>", r.home, "<home>", filepath.Dir(yetttest.Bin("yett")), "<bin>",
		"node-linux-" + npmArch(), "node-linux-<arch>", "linux-" + npmArch(), "linux-<arch>",
		fmt.Sprintf("(pid %d)", shim.Kernel.PID), "(pid <pid>)",
		fmt.Sprintf("pid %d of user %d", agent.Kernel.PID, agent.Kernel.UID), "pid <pid> of user <uid>",
	}
	for _, g := range c.Granting.Capabilities {
		pairs = append(pairs, g.Target, "<api>")
	}
	for _, p := range []approval.Process{agent, *shim} {
		if p.Filesystem.SHA256 != "" {
			pairs = append(pairs, p.Filesystem.SHA256, "<sha256>")
		}
	}
	return names{strings.NewReplacer(pairs...)}
}

// document is a card's document, indented.
func (n names) document(t *testing.T, card json.RawMessage) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(card))
	dec.UseNumber()
	var tree any
	must(t, dec.Decode(&tree))
	out := new(bytes.Buffer)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	must(t, enc.Encode(n.named("", tree)))
	return out.String()
}

func (n names) named(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = n.named(k, v[k])
		}
	case []any:
		for i := range v {
			v[i] = n.named(key, v[i])
		}
	case string:
		if changing[key] {
			return "<" + key + ">"
		}
		return n.text(v)
	case json.Number:
		if changing[key] {
			return "<" + key + ">"
		}
	}
	return v
}

var (
	goesOn = regexp.MustCompile(`\n +┆ `) // a line that the terminal's width broke
	clock  = regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\b\d\d:\d\d(:\d\d)?\b`)
	// What a host makes of the machine: Gemini CLI sizes Node's heap by its
	// memory, and Codex has the processor in a path.
	heap  = regexp.MustCompile(`--max-old-space-size=\d+`)
	build = regexp.MustCompile(`\b(x86_64|aarch64)-unknown-linux`)
)

// text names the values in a text.
func (n names) text(s string) string {
	return build.ReplaceAllString(heap.ReplaceAllString(n.texts.Replace(s), "--max-old-space-size=<size>"), "<arch>-unknown-linux")
}

// terminal is a card as the terminal shows it, in lines of any length.
func (n names) terminal(text string) string {
	return clock.ReplaceAllString(n.text(goesOn.ReplaceAllString(text, "")), "<time>")
}
