package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// grace is the account of a newcomer: it exists within a namespace only.
const (
	grace           = 64921
	newcomerRole    = "as-newcomer"
	newcomersPhrase = "a passphrase of somebody new"
	newcomersToken  = "an-existing-demo-token"
)

// TestF1_NewcomerFromThePackage: the package is installed, an account has
// nothing but a token. Two commands later an agent's first action was done,
// approved by the person; each command said what comes next, no file was edited,
// and what lies in the home is Yett's.
func TestF1_NewcomerFromThePackage(t *testing.T) {
	root, err := os.MkdirTemp("", "yett-newcomer-") // t.TempDir is closed to other accounts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	dpkg(t, root, "--install", one(t, packages(t)+"/*.deb"))
	used := make(chan string, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		used <- r.Header.Get("Authorization") + " " + r.URL.Path
		io.WriteString(w, `{"hello":"newcomer"}`)
	}))
	defer api.Close()

	home := filepath.Join(root, "home")
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Mkdir(home, 0o700), os.Chmod(root, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, newcomerRole, filepath.Join(root, "usr/bin"), api.URL, filepath.Join(home, "yett"))
	if os.Getuid() == 0 {
		output(t, "cp", self, filepath.Join(root, "newcomer"))
		output(t, "chown", fmt.Sprint(grace), home)
		etc := filepath.Join(root, "scratch-etc")
		passwd := fmt.Sprintf("grace:x:%d:%d::%s:/bin/sh\n", grace, grace, home)
		if err := errors.Join(os.Mkdir(etc, 0o755), os.WriteFile(filepath.Join(etc, "passwd"), []byte(passwd), 0o644)); err != nil {
			t.Fatal(err)
		}
		c = exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc && exec setpriv --reuid `+fmt.Sprint(grace)+` --regid `+fmt.Sprint(grace)+` --clear-groups "$@"`,
			etc, filepath.Join(root, "newcomer"), newcomerRole, filepath.Join(root, "usr/bin"), api.URL, "")
	}
	c.Dir, c.Env = "/", []string{"PATH=/usr/bin:/bin", "HOME=" + home}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got newcomersReport
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(got.Commands) > 2 {
		t.Errorf("%d commands: %q", len(got.Commands), got.Commands)
	}
	for i, next := range []string{"next: yett add PRESET", "next: let an agent ask for it"} {
		if !strings.Contains(got.Printed[i], next) || !strings.Contains(got.Printed[i], filepath.Join(root, "usr/bin/yett-mcp")) {
			t.Errorf("%s does not say what comes next:\n%s", got.Commands[i], got.Printed[i])
		}
	}
	if !strings.Contains(got.Action, "completed: HTTP 200") || !strings.Contains(got.Action, "newcomer") {
		t.Errorf("the action: %s", got.Action)
	}
	if len(used) != 2 { // the try of yett add, and the agent's
		t.Errorf("the API saw %d requests", len(used))
	}
	for range len(used) {
		if r := <-used; r != "Bearer "+newcomersToken+" /v1/hello" {
			t.Errorf("the API saw %q", r)
		}
	}
	if edited := notYetts(t, home); len(edited) != 0 {
		t.Errorf("files that are not Yett's: %v", edited)
	}
}

// notYetts are the files in a home that lie outside of Yett's directories.
func notYetts(t *testing.T, home string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !slices.Contains(strings.Split(path[len(home):], "/"), "yett") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// newcomersReport is what the newcomer did and saw.
type newcomersReport struct {
	Commands []string
	Printed  []string
	Action   string
}

// newcomer is the account's side: the commands, the agent that it starts, and
// the person's answer to the agent's card.
type newcomer struct {
	bin, home string
	report    newcomersReport
}

func runNewcomer(args []string) int {
	n := newcomer{bin: args[0], home: args[2]}
	err := n.firstAction(args[1])
	n.yett([]string{"stop"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	json.NewEncoder(os.Stdout).Encode(n.report)
	return 0
}

func (n *newcomer) firstAction(url string) error {
	for _, c := range []struct{ args, secrets []string }{
		{[]string{"up", "--passphrase-fd", "3", "--recovery-fd", "4"}, []string{newcomersPhrase, ""}},
		{[]string{"add", "http", "--name", "demo", "--origin", url, "--path", "/v1/hello", "--passphrase-fd", "3", "--value-fd", "4"}, []string{newcomersPhrase, newcomersToken}},
	} {
		out, err := n.yett(c.args, c.secrets...)
		if err != nil {
			return err
		}
		n.report.Commands = append(n.report.Commands, strings.Join(c.args, " "))
		n.report.Printed = append(n.report.Printed, out)
	}
	agent := exec.Command(filepath.Join(n.bin, "yett-mcp"), n.flags()...)
	in, err := agent.StdinPipe()
	if err != nil {
		return err
	}
	answers, err := agent.StdoutPipe()
	if err == nil {
		err = agent.Start()
	}
	if err != nil {
		return err
	}
	defer agent.Wait()
	defer in.Close()
	time.AfterFunc(time.Minute, func() { agent.Process.Kill() })
	dec := json.NewDecoder(answers)
	say := func(line string) (string, error) {
		if _, err := io.WriteString(in, line+"\n"); err != nil || !strings.Contains(line, `"id"`) {
			return "", err
		}
		var answer json.RawMessage
		err := dec.Decode(&answer)
		return string(answer), err
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"newcomer","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"request_access","arguments":{"capabilities":["http:demo.read"],"purpose":"a first try","wait_ms":0}}}`,
	} {
		if _, err := say(line); err != nil {
			return err
		}
	}
	if err := n.decide(); err != nil {
		return err
	}
	n.report.Action, err = say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"http_request","arguments":{"capability":"http:demo.read","method":"GET","path":"/v1/hello","wait_ms":20000}}}`)
	return err
}

// decide is the person's answer to the one card that waits.
func (n *newcomer) decide() error {
	out, err := n.yett([]string{"pending", "--json", "--passphrase-fd", "3"}, newcomersPhrase)
	if err != nil {
		return err
	}
	var cards []struct {
		ID     string `json:"approval_id"`
		Digest string `json:"card_digest"`
	}
	if err := json.Unmarshal([]byte(out), &cards); err != nil || len(cards) != 1 {
		return fmt.Errorf("cards: %v %s", err, out)
	}
	_, err = n.yett([]string{"approve", cards[0].ID, "--digest", cards[0].Digest, "--passphrase-fd", "3"}, newcomersPhrase)
	return err
}

func (n *newcomer) flags() []string {
	if n.home == "" {
		return nil
	}
	return []string{"--home", n.home}
}

// yett runs a command with secrets on descriptors from 3 on; an empty one is for
// the command to write to, and nobody keeps it.
func (n *newcomer) yett(args []string, secrets ...string) (string, error) {
	c := exec.Command(filepath.Join(n.bin, "yett"), append(args, n.flags()...)...)
	for _, s := range secrets {
		r, w, err := os.Pipe()
		if err != nil {
			return "", err
		}
		defer r.Close()
		defer w.Close()
		if s == "" {
			c.ExtraFiles = append(c.ExtraFiles, w)
			continue
		}
		io.WriteString(w, s+"\n")
		w.Close()
		c.ExtraFiles = append(c.ExtraFiles, r)
	}
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("yett %v: %w\n%s%s", args, err, out, said.String())
	}
	return string(out), nil
}
