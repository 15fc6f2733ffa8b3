//go:build hosts && linux

package hosts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/yetttest"
)

// standing are the values that stand for those of one run: what differs from
// run to run, from account to account and from machine to machine. The
// document stays a card, of the same types. Not listed here are: directories,
// processor and API, see nameValues; process ids (1001 …) and digests (111…,
// 222…), numbered in the order of the document; and the chain above the
// process of the test, which is cut off.
var standing = map[string]any{
	"approval_id": "a_1", "broker_instance": "b_1", "channel_id": "c_1", "tag": "quail orchid",
	"expires_at": "2026-01-02T03:04:05Z", "longest_end": "2026-01-02T03:04:05Z",
	"boot_id": "00000000-0000-0000-0000-000000000000", "cgroup": "/test",
	"pidfs_inode": 1, "start_ticks": 1, "exe_device": 1, "exe_inode": 1, "size": 1,
	"uid": 1000, "gid": 1000, "owner": 1000,
}

// names replaces the values of one run.
type names struct {
	texts    *strings.Replacer
	numbered map[string]int // values by their place in the document
}

// nameValues collects the values of one run that stand in texts.
func nameValues(b *yetttest.Broker, r *running, c approval.Card) names {
	pairs := []string{modules(), "/opt/hosts/node_modules", b.Home, "/tmp/test/home", r.home, "/home/person", filepath.Dir(yetttest.Bin("yett")), "/opt/yett",
		"linux-" + npmArch(), "linux-x64", "aarch64-", "x86_64-"}
	for _, g := range c.Granting.Capabilities {
		pairs = append(pairs, g.Target, "http://127.0.0.1:8080")
	}
	return names{strings.NewReplacer(pairs...), map[string]int{}}
}

// heap is how Gemini CLI sizes Node's heap, by the memory of the machine.
var heap = regexp.MustCompile(`--max-old-space-size=\d+`)

func (n names) text(s string) string {
	return heap.ReplaceAllString(n.texts.Replace(s), "--max-old-space-size=8192")
}

// document is a card's document with other values, indented.
func (n names) document(t *testing.T, card json.RawMessage) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(card))
	dec.UseNumber()
	var tree map[string]any
	must(t, dec.Decode(&tree))
	cutChain(tree["verified"].(map[string]any))
	out := new(bytes.Buffer)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	must(t, enc.Encode(n.replaced("", tree)))
	return out.String()
}

// cutChain leaves of the agent's ancestors those that are not the test's own.
func cutChain(verified map[string]any) {
	chain, _ := verified["chain"].([]any)
	end := slices.IndexFunc(chain, func(a any) bool {
		return fmt.Sprint(a.(map[string]any)["kernel"].(map[string]any)["pid"]) == strconv.Itoa(os.Getpid())
	})
	if end >= 0 {
		verified["chain"] = chain[:end]
		delete(verified, "chain_cut")
	}
}

func (n names) replaced(key string, v any) any {
	if stands, ok := standing[key]; ok {
		return stands
	}
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			v[k] = n.replaced(k, v[k])
		}
	case []any:
		for i := range v {
			v[i] = n.replaced(key, v[i])
		}
	case string:
		if key == "sha256" {
			return strings.Repeat(strconv.Itoa(n.number("sha256", v)), 64)
		}
		return n.text(v)
	case json.Number:
		if key == "pid" || key == "ppid" {
			return 1000 + n.number("pid", v.String())
		}
	}
	return v
}

// number gives equal values of a kind equal numbers, from 1.
func (n names) number(kind, value string) int {
	key := kind + " " + value
	if n.numbered[key] == 0 {
		n.numbered[key] = n.numbered[kind] + 1
		n.numbered[kind]++
	}
	return n.numbered[key]
}
