package yetttest

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// shimAt starts yett-mcp for a home, with an environment and a directory of the
// attacker's choice.
func (b *Broker) shimAt(dir string, env []string, args ...string) *host {
	b.T.Helper()
	c := exec.Command(Bin("yett-mcp"), args...)
	c.Dir, c.Env = dir, append(env, "GORACE="+os.Getenv("GORACE"))
	return b.host(c, nil).start().ready()
}

// TestAttackFakeBrokerOnThePath: a process of the account listens where the
// broker did. It is not the installed yett: it gets not a byte.
func TestAttackFakeBrokerOnThePath(t *testing.T) {
	b, _ := demoBroker(t)
	h := b.startShim().ready()
	h.call("list_access", "{}")
	b.Kill()
	fake := newPuppet(t)
	fake.do("fakelisten", b.Home)
	fake.order("fakebroker")
	h.call("list_access", "{}").refused(t, "unavailable", "was not proven to be Yett's broker")
	if got, err := fake.hear(); err != nil || got != "" {
		t.Errorf("the fake broker was told %q, %v", got, err)
	}
}

// TestAttackListenerHandedOver: the process that called listen becomes the
// installed yett, which hides itself as every broker does; a child that kept the
// socket answers. It gets a greeting and nothing after it.
func TestAttackListenerHandedOver(t *testing.T) {
	b, _ := demoBroker(t)
	h := b.startShim().ready()
	h.call("list_access", "{}")
	b.Kill()
	decoy := New(t) // what the installed yett serves meanwhile
	fake := newPuppet(t)
	fake.do("fakelisten", b.Home)
	fake.order("handover", Bin("yett"), "serve", "--home", decoy.Home)
	if said, err := fake.hear(); err != nil || said != "up" {
		t.Fatalf("%q, %v", said, err)
	}
	fake.order("fakebroker")
	h.call("list_access", "{}").refused(t, "unavailable")
	got, err := fake.hear()
	if err != nil || strings.Count(got, "\n") > 1 || strings.Contains(got, "session.open") {
		t.Errorf("the fake broker was told %q, %v", got, err)
	}
}

// TestAttackHiddenFakeBroker: a fake broker of the account that hides its
// program cannot be told from the real one. It gets what an agent asks, and it
// has no credential to act with: the upstream hears nothing, and nothing it says
// stands in the record.
func TestAttackHiddenFakeBroker(t *testing.T) {
	b, up := demoBroker(t)
	rows := len(b.Activity())
	b.Kill()
	fake := newPuppet(t)
	fake.do("hide")
	fake.do("fakelisten", b.Home)
	fake.order("fakebroker")
	h := b.startShim().ready()
	h.await(h.begin("http_request", getX)) // whatever it made of it
	h.in.Close()
	h.gone()
	got, err := fake.hear()
	if err != nil || !strings.Contains(got, `"hello"`) || strings.Contains(got, canary) || strings.Contains(got, Passphrase) {
		t.Errorf("the fake broker was told %q, %v", got, err)
	}
	up.only(t)
	fake.order("exit")
	<-fake.exited
	must(t, os.Remove(b.Location().Socket)) // by the person: Yett removes nothing that it did not make
	b.Serve()
	b.Unlock()
	for _, r := range b.Activity()[rows:] {
		if r.Kind == "intent" || r.Kind == "session.opened" {
			t.Errorf("a row of it: %+v", r)
		}
	}
}

// TestAttackFakeBrokerByEnvironment: variables and files of the project name
// another broker. Neither is asked.
func TestAttackFakeBrokerByEnvironment(t *testing.T) {
	b, up := demoBroker(t)
	lure, err := os.MkdirTemp("", "yl")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(lure) })
	var came atomic.Int64
	for _, place := range []string{"yett", "run", ".local/state/yett/run", "user/" + fmt.Sprint(os.Getuid()) + "/yett"} {
		dir := filepath.Join(lure, place)
		must(t, os.MkdirAll(dir, 0o700))
		ln, err := net.Listen("unix", filepath.Join(dir, "broker.sock"))
		must(t, err)
		must(t, os.Chmod(filepath.Join(dir, "broker.sock"), 0o600))
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				came.Add(1)
				c.Close()
			}
		}()
	}
	for name, text := range map[string]string{".mcp.json": `{"mcpServers":{"yett":{"command":"yett-mcp","env":{"YETT_HOME":"%[1]s"},"args":["--home","%[1]s"]}}}`,
		".env": "YETT_HOME=%[1]s\nHOME=%[1]s\nXDG_RUNTIME_DIR=%[1]s\n", "yett.toml": "home = \"%[1]s\"\nendpoint = \"%[1]s/run/broker.sock\"\n"} {
		must(t, os.WriteFile(filepath.Join(lure, name), []byte(strings.ReplaceAll(text, "%[1]s", lure)), 0o600))
	}
	var env []string
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "YETT_HOME", "YETT_DIR", "PWD"} {
		env = append(env, name+"="+lure)
	}
	env = append(env, "YETT_SOCKET="+lure+"/run/broker.sock", "YETT_ENDPOINT="+lure+"/run/broker.sock", "YETT_BROKER="+lure+"/run/broker.sock", "USER=root", "LOGNAME=root")
	b.Env = env
	h := b.shimAt(lure, env, "--home", b.Home)
	h.grant("http:demo.read")
	h.call("http_request", getX).wants(t, "completed: ")
	if r := b.Run("status"); r.Code != 0 || !strings.Contains(r.Stdout, b.Home) {
		t.Errorf("status: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	// Without --home the account database alone decides.
	other := b.shimAt(lure, env)
	other.call("list_access", "{}")
	if n := came.Load(); n != 0 {
		t.Errorf("the fake brokers got %d connections", n)
	}
	up.only(t, "GET /v1/x")
}

// TestAttackPath: programs by the names of ours, and of what they might call,
// stand first in PATH and in the directory of the caller.
func TestAttackPath(t *testing.T) {
	up := StartUpstream(t, canary)
	trap := t.TempDir()
	mark := filepath.Join(trap, "called")
	for _, name := range []string{"yett", "yett-mcp", "sh", "bash", "ssh", "ssh-agent", "git", "id", "getent", "hostname", "stty", "tty", "uname", "systemctl", "xdg-open", "open", "security"} {
		must(t, os.WriteFile(filepath.Join(trap, name), []byte("#!/bin/sh\necho "+name+" >> "+mark+"\n"), 0o755))
	}
	t.Chdir(trap)
	env := []string{"PATH=" + trap + ":.", "SHELL=" + trap + "/sh", "EDITOR=" + trap + "/sh", "PAGER=" + trap + "/sh", "BROWSER=" + trap + "/open"}
	b := New(t)
	b.Env = env
	b.Serve()
	b.Unlock()
	b.Apply(up.Access())
	b.SetSecret("demo", canary)
	h := b.shimAt(trap, env, "--home", b.Home)
	h.grant("http:demo.read")
	h.call("http_request", getX).wants(t, "completed: ")
	for _, command := range [][]string{{"status"}, {"pending"}, {"sessions"}, {"activity"}, {"lock"}} {
		if r := b.Run(command...); r.Code != 0 {
			t.Errorf("yett %v: %d %s", command, r.Code, r.Stderr)
		}
	}
	if called, err := os.ReadFile(mark); err == nil {
		t.Errorf("called:\n%s", called)
	}
	up.only(t, "GET /v1/x")
}

// TestAttackSymlinkedHome: the home of the broker becomes a link to a place
// where a fake broker listens that cannot be told by its program.
func TestAttackSymlinkedHome(t *testing.T) {
	b, _ := demoBroker(t)
	b.Kill()
	lure := filepath.Join(filepath.Dir(b.Home), "lure")
	must(t, os.Mkdir(lure, 0o700))
	fake := newPuppet(t)
	fake.do("hide")
	fake.do("fakelisten", lure)
	for _, part := range []string{"", "run"} {
		at := filepath.Join(b.Home, part)
		must(t, os.Rename(at, at+".was"))
		must(t, os.Symlink(filepath.Join(lure, part), at))
		h := b.startShim().ready()
		h.call("list_access", "{}").refused(t, "unavailable", "a symbolic link")
		h.in.Close()
		h.gone()
		must(t, os.Remove(at))
		must(t, os.Rename(at+".was", at))
	}
	fake.order("fakebroker") // nobody came: the first connection is ours
	c, err := net.Dial("unix", filepath.Join(lure, "run", "broker.sock"))
	must(t, err)
	io.WriteString(c, "it was us\n")
	c.(*net.UnixConn).CloseWrite()
	if got, err := fake.hear(); err != nil || got != "it was us\n" {
		t.Errorf("the fake broker was told %q, %v", got, err)
	}
	c.Close()
}

// TestAttackWideSocket: whoever widens the modes of the socket or of its
// directory has made it another one: clients do not go there.
func TestAttackWideSocket(t *testing.T) {
	b, _ := demoBroker(t)
	h := b.startShim().ready()
	socket := b.Location().Socket
	for path, modes := range map[string][2]os.FileMode{socket: {0o666, 0o600}, filepath.Dir(socket): {0o755, 0o700}} {
		must(t, os.Chmod(path, modes[0]))
		h.call("list_access", "{}").refused(t, "unavailable", "its mode is")
		must(t, os.Chmod(path, modes[1]))
	}
	h.call("list_access", "{}").wants(t, "none is granted")
}

// TestAttackBrokerEnvironment: the broker is started with variables that change
// whom a Go program believes, where it connects and what it prints of itself.
func TestAttackBrokerEnvironment(t *testing.T) {
	up := StartUpstream(t, canary)
	proxied := StartUpstream(t, canary)
	var reached atomic.Int64
	middle := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	middle.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(middle.Close)
	dir := t.TempDir()
	authority, keys := filepath.Join(dir, "authority"), filepath.Join(dir, "keys")
	must(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: middle.Certificate().Raw}), 0o600))
	b := New(t)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		b.Env = append(b.Env, name+"="+proxied.URL)
	}
	b.Env = append(b.Env, "GODEBUG=http2debug=2,netdns=go+2,httplaxcontentlength=1,tls10server=1,tlsrsakex=1,x509negativeserial=1",
		"GOTRACEBACK=crash", "SSLKEYLOGFILE="+keys, "SSL_CERT_FILE="+authority, "SSL_CERT_DIR="+dir, "LOCALDOMAIN=evil.example", "RES_OPTIONS=debug", "NO_PROXY=")
	b.Serve()
	b.Unlock()
	b.Apply(up.Access() + strings.NewReplacer("credential.demo", "credential.tls", up.URL, middle.URL, "http:demo", "http:tls", `"demo"`, `"tls"`).Replace(up.Access()))
	b.SetSecret("demo", canary)
	b.SetSecret("tls", canary)
	c := b.Granted("http:demo.read", "http:tls.read")
	c.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/own"})
	c.MustAct("http:tls.read", map[string]any{"method": "GET", "path": "/v1/own"})
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached a server that only the environment vouches for", n)
	}
	up.only(t, "GET /v1/own")
	proxied.only(t)
	must(t, syscall.Kill(b.PID(), syscall.SIGQUIT))
	b.cmd.Wait()
	b.cmd = nil
	for _, secret := range []string{canary, Passphrase, "Bearer"} {
		if strings.Contains(string(b.Printed()), secret) {
			t.Errorf("the broker printed %.6s…", secret)
		}
	}
	if _, err := os.Stat(keys); err == nil {
		t.Error("the broker wrote the keys of its connections")
	}
}
