package yetttest

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
)

//go:embed testdata/cards
var goldenCards embed.FS

// agentCopy is a program of the account that a card can name.
func agentCopy(t testing.TB, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, copyFile("/proc/self/exe", path, 0o755))
	return path
}

// goldenCase is one way in which yett-mcp is started, and the card of it.
type goldenCase struct {
	name string
	need string // a program that must be there
	card func(t *testing.T, b *Broker, dir string) Card
}

var goldenCases = []goldenCase{
	{"direct", "", func(t *testing.T, b *Broker, dir string) Card {
		return b.askAs(t, cardAgent(agentCopy(t, dir, "agent"), "run", Bin("yett-mcp"), "--home", b.Home))
	}},
	{"sh-c", "", func(t *testing.T, b *Broker, dir string) Card {
		return b.askAs(t, cardAgent(agentCopy(t, dir, "agent"), "run", "/bin/sh", "-c", `"$0" --home "$1"; exit $?`, Bin("yett-mcp"), b.Home))
	}},
	{"npx", "npx", func(t *testing.T, b *Broker, dir string) Card {
		localPackage(t, dir)
		c := cardAgent(agentCopy(t, dir, "agent"), "run", look(t, "npx"), "--no-install", "start-yett", Bin("yett-mcp"), "--home", b.Home)
		c.Dir = dir
		c.Env = append(c.Env, "PATH=/usr/local/bin:/usr/bin:/bin:"+filepath.Dir(look(t, "node")), "HOME="+dir, "npm_config_offline=true", "npm_config_update_notifier=false")
		return b.askAs(t, c)
	}},
	{"interpreter", "node", func(t *testing.T, b *Broker, dir string) Card {
		script := filepath.Join(dir, "agent.mjs")
		must(t, os.WriteFile(script, []byte(nodeAgent), 0o644))
		return b.askAs(t, cardProgram(look(t, "node"), script, Bin("yett-mcp"), "--home", b.Home))
	}},
	{"script", "", func(t *testing.T, b *Broker, dir string) Card {
		script := filepath.Join(dir, "agent.sh")
		must(t, os.WriteFile(script, []byte("#!/bin/sh\n\"$@\"\nexit $?\n"), 0o755))
		return b.askAs(t, cardProgram(script, Bin("yett-mcp"), "--home", b.Home))
	}},
	{"hidden", "", func(t *testing.T, b *Broker, dir string) Card {
		return b.askAs(t, cardAgent(agentCopy(t, dir, "agent"), "hide", Bin("yett-mcp"), "--home", b.Home))
	}},
	{"replaced", "", func(t *testing.T, b *Broker, dir string) Card {
		return b.askAs(t, cardAgent(agentCopy(t, dir, "agent"), "replace", Bin("yett-mcp"), "--home", b.Home))
	}},
	{"memory", "", func(t *testing.T, b *Broker, dir string) Card {
		return b.askAs(t, inMemory(t, "run", Bin("yett-mcp"), "--home", b.Home))
	}},
	{"second-shim", "", func(t *testing.T, b *Broker, dir string) Card {
		return b.askAs(t, cardAgent(agentCopy(t, dir, "agent"), "two", Bin("yett-mcp"), "--home", b.Home))
	}},
	{"no-guard", "", func(t *testing.T, b *Broker, dir string) Card {
		return b.askWith(t, cardAgent(agentCopy(t, dir, "agent"), "run", Bin("yett-mcp"), "--home", b.Home), func(h *host) { h.pair = terminal })
	}},
	{"native", "", func(t *testing.T, b *Broker, dir string) Card {
		c := exec.Command(agentCopy(t, dir, "client"), b.Home, "itself")
		c.Env = []string{roleVariable + "=native"}
		must(t, alone(c).Start())
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		return b.WaitCard()
	}},
	{"container", "", func(t *testing.T, b *Broker, dir string) Card {
		door, err := os.OpenFile(Bin(containerDoor), os.O_WRONLY, 0)
		if os.IsNotExist(err) {
			t.Skip("only root can make other namespaces with the account of the broker")
		}
		must(t, err)
		_, err = door.WriteString(b.Home)
		must(t, err)
		door.Close()
		return b.WaitCard()
	}},
	{"action-http", "", func(t *testing.T, b *Broker, dir string) Card {
		c := cardAgent(agentCopy(t, dir, "agent"), "run", Bin("yett-mcp"), "--home", b.Home)
		return b.actAs(t, c, "http_request", `{"capability":"http:demo.pay","method":"POST","path":"/v1/payments","query":{"dry":"0"},`+
			`"headers":{"Content-Type":"application/json","Idempotency-Key":"7"},"body":"{\"to\":\"DE00 1234\",\n \"amount\":1200}","wait_ms":0}`)
	}},
	{"action-ssh", "", func(t *testing.T, b *Broker, dir string) Card {
		c := cardAgent(agentCopy(t, dir, "agent"), "run", Bin("yett-mcp"), "--home", b.Home)
		return b.actAs(t, c, "ssh_run", `{"capability":"ssh:web1.restart","argv":["systemctl","restart","nginx"],"stdin":"y\n","wait_ms":0}`)
	}},
}

// TestD5_GoldenCards: what a person is asked, for every way in which an agent
// can come, from real processes through a real broker.
func TestD5_GoldenCards(t *testing.T) {
	for _, c := range goldenCases {
		t.Run(c.name, func(t *testing.T) {
			if c.need != "" {
				look(t, c.need)
			}
			b := Start(t, cardAccess, "demo", canary, "old", canary)
			dir, err := os.MkdirTemp("", "cards")
			must(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			card := c.card(t, b, dir)
			if approval.Digest(card.Card) != card.CardDigest {
				t.Error("the digest is not that of the card")
			}
			got := normalized(t, card.Card, b.Home, dir)
			name := c.name + ".json"
			if *update {
				writeGolden(t, name, got)
				return
			}
			want, err := goldenCards.ReadFile("testdata/cards/" + name)
			must(t, err)
			if !bytes.Equal(got, want) {
				t.Errorf("the card is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// normalized replaces what differs from run to run by values that stand for
// it, and indents the document; all else stays byte for byte. Replaced are:
// the directories of the test (/tmp/test, /opt/yett) and its account (1000);
// process ids in the order of their appearance (1001 …); inodes (11 …), device
// numbers, start times and sizes (1); digests of files (111…, 222…); the boot
// id; the cgroup; times (2026-01-02T03:04:05Z); ids (a_1, s_1 …) and the words
// made of them; the places of sh and node; and the chain above the process of
// the test is cut off.
func normalized(t *testing.T, doc []byte, home, dir string) []byte {
	t.Helper()
	s := string(doc)
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		above := regexp.MustCompile(`,?\{"kernel":\{"exe_path":"[^"]*","pid":` + strconv.Itoa(pid) + `\}\}[^\]]*`)
		s = above.ReplaceAllString(s, "")
	}
	s = strings.Replace(s, `,"chain_cut":true`, "", 1) // an account may not look at what runs as root
	sh, err := filepath.EvalSymlinks("/bin/sh")
	must(t, err)
	s = strings.NewReplacer(home, "/tmp/test/home", dir, "/tmp/test", os.Getenv(envBin), "/opt/yett",
		`"`+sh+`"`, `"/usr/bin/dash"`, `runtime: `+filepath.Base(sh), "runtime: dash").Replace(s)
	for _, program := range []string{"node", "npx"} {
		if at, err := exec.LookPath(program); err == nil {
			real, err := filepath.EvalSymlinks(at)
			must(t, err)
			s = strings.NewReplacer(`"`+at+`"`, `"/usr/bin/`+program+`"`, `"`+real+`"`, `"/usr/bin/`+program+`"`).Replace(s)
		}
	}
	shim := regexp.MustCompile(`("shim":\{.*?"owner":)0`) // root builds for the account that runs the tests
	s = shim.ReplaceAllString(s, "${1}"+strconv.Itoa(os.Getuid()))
	numbered := func(pattern string, value func(n int) string) {
		seen := map[string]int{}
		s = regexp.MustCompile(pattern).ReplaceAllStringFunc(s, func(m string) string {
			i := strings.LastIndexAny(m, `:"_`) // what stands before the value is kept
			key, v := m[:i+1], m[i+1:]
			if v == "0" {
				return m
			}
			if seen[v] == 0 {
				seen[v] = len(seen) + 1
			}
			return key + value(seen[v])
		})
	}
	number := func(base int) func(int) string { return func(n int) string { return strconv.Itoa(base + n) } }
	one := func(int) string { return "1" }
	numbered(`"(?:pid|ppid|tracer_pid)":\d+`, number(1000))
	numbered(`"(?:exe_inode|pidfs_inode)":\d+`, number(10))
	numbered(`"(?:exe_device|start_ticks|size)":\d+`, one)
	numbered(`"(?:uid|gid|owner)":`+strconv.Itoa(os.Getuid()), number(999))
	numbered(`"sha256":"[0-9a-f]+`, func(n int) string { return strings.Repeat(strconv.Itoa(n), 64) })
	numbered(`\b(?:a|b|c|op)_[0-9A-Z]{20,}`, number(0))
	s = regexp.MustCompile(`"boot_id":"[^"]*"`).ReplaceAllString(s, `"boot_id":"00000000-0000-0000-0000-000000000000"`)
	s = regexp.MustCompile(`"cgroup":"[^"]*"`).ReplaceAllString(s, `"cgroup":"/test"`)
	s = regexp.MustCompile(`"20\d\d-[^"]*Z"`).ReplaceAllString(s, `"2026-01-02T03:04:05Z"`)
	s = regexp.MustCompile(`"tag":"[^"]*"`).ReplaceAllString(s, `"tag":"quail orchid"`)
	var out bytes.Buffer
	must(t, json.Indent(&out, []byte(s), "", "  "))
	return append(out.Bytes(), '\n')
}

func look(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	return path
}

func cardAgent(program string, role string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = []string{cardRole + "=" + role, "GORACE=" + os.Getenv("GORACE")}
	return alone(c)
}

func cardProgram(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	return alone(c)
}

// alone takes a command off the terminal that the tests may run on.
func alone(c *exec.Cmd) *exec.Cmd {
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c
}

// askAs lets an agent ask for capabilities, and returns its card.
func (b *Broker) askAs(t *testing.T, agent *exec.Cmd) Card {
	t.Helper()
	return b.askWith(t, agent, func(*host) {})
}

func (b *Broker) askWith(t *testing.T, agent *exec.Cmd, change func(*host)) Card {
	t.Helper()
	h := b.host(agent, nil)
	h.t = t
	change(h)
	h.start().ready()
	asked := h.call("request_access", `{"capabilities":["http:demo.read","http:old.status"],"purpose":"Find the unpaid invoices of October","wait_ms":0}`)
	card := b.CardOf(asked.session(t).Pending.ApprovalID)
	var shown struct{ Tag string }
	if json.Unmarshal(card.Card, &shown); shown.Tag != asked.tag(t) {
		t.Errorf("the card shows %q, the agent was told %q", shown.Tag, asked.tag(t))
	}
	return card
}

// actAs lets an agent that has a session ask for one action that is asked for
// by itself, and returns the card of the action.
func (b *Broker) actAs(t *testing.T, agent *exec.Cmd, tool, arguments string) Card {
	t.Helper()
	h := b.host(agent, nil)
	h.t = t
	h.start().ready()
	h.grant("http:demo.pay", "ssh:web1.restart")
	said := h.call(tool, arguments)
	card := b.CardOf(said.operation(t).Pending.ApprovalID)
	var shown struct{ Tag string }
	if json.Unmarshal(card.Card, &shown); shown.Tag != said.tag(t) {
		t.Errorf("the card shows %q, the agent was told %q", shown.Tag, said.tag(t))
	}
	return card
}

// nodeAgent starts yett-mcp as Node hosts do: standard input is a socket.
const nodeAgent = `
import { spawn } from 'node:child_process';
const [program, ...args] = process.argv.slice(2);
const child = spawn(program, args, { stdio: ['pipe', 'inherit', 'inherit'] });
process.stdin.pipe(child.stdin);
child.on('exit', (code) => process.exit(code ?? 1));
`

// localPackage is a package that starts yett-mcp, as npx starts one.
func localPackage(t *testing.T, dir string) {
	t.Helper()
	bin := filepath.Join(dir, "node_modules", "start-yett", "start.js")
	must(t, os.MkdirAll(filepath.Dir(bin), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "node_modules", ".bin"), 0o755))
	must(t, os.WriteFile(bin, []byte("#!/usr/bin/env node\nrequire('child_process').spawnSync(process.argv[2], process.argv.slice(3), {stdio: 'inherit'});\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(bin), "package.json"), []byte(`{"name":"start-yett","version":"1.0.0","bin":{"start-yett":"start.js"}}`), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"project","version":"1.0.0","dependencies":{"start-yett":"1.0.0"}}`), 0o644))
	must(t, os.Symlink("../start-yett/start.js", filepath.Join(dir, "node_modules", ".bin", "start-yett")))
}

// inMemory is the agent as a program that has no file.
func inMemory(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	fd, err := memfd("agent")
	must(t, err)
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	_, err = fd.Write(self)
	must(t, err)
	t.Cleanup(func() { fd.Close() })
	c := &exec.Cmd{Path: "/proc/self/fd/3", Args: append([]string{"agent"}, args...), ExtraFiles: []*os.File{fd}}
	c.Env = []string{cardRole + "=" + role, "GORACE=" + os.Getenv("GORACE")}
	return alone(c)
}

func init() {
	role := os.Getenv(cardRole)
	if role == "" {
		return
	}
	os.Unsetenv(cardRole)
	if err := playCardRole(role, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "playing", role, "failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
