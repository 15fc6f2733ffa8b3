// Package s3 holds the signatures of Yett against an S3 server that nobody here
// wrote and that checks them: versitygw. It is a module of its own, since that
// server has a hundred dependencies; make s3 runs it.
package s3

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/httpexec"
)

const (
	id     = "YETTTESTKEY"
	secret = "s3cret/of+the=server"
	region = "eu-central-1"
)

// server starts versitygw over a directory and returns where it listens.
func server(t *testing.T) httpexec.Target {
	t.Helper()
	program := filepath.Join(t.TempDir(), "versitygw")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/versity/versitygw/cmd/versitygw").CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	var log bytes.Buffer
	c := exec.Command(program, "--port", fmt.Sprintf("127.0.0.1:%d", port), "--region", region, "posix", "--nometa", t.TempDir())
	c.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+id, "ROOT_SECRET_KEY="+secret)
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", log.String())
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the server did not start: %v", err)
		}
	}
	return httpexec.Target{Scheme: "http", Host: "127.0.0.1", Port: port, Private: true, Timeout: 20 * time.Second}
}

// TestSigV4Versitygw: requests in the canonical form of an action are signed so
// that the server takes them, whatever stands in keys, parameters and headers;
// those with another secret or region are refused by it.
func TestSigV4Versitygw(t *testing.T) {
	target := server(t)
	e := httpexec.New(httpexec.Options{OwnPorts: func() []int { return nil }})
	defer e.Close()
	cred := httpexec.Credential{Kind: httpexec.KindSigV4, Service: "s3", Region: region, Secret: []byte(id + ":" + secret)}
	do := func(c httpexec.Credential, in action.HTTPInput) *httpexec.Result {
		t.Helper()
		h, refusal := action.NewHTTP(in)
		if refusal != nil {
			t.Fatalf("%s %s: %s", in.Method, in.Path, refusal.Detail)
		}
		res, err := e.Do(t.Context(), target, c, *h)
		if err != nil {
			t.Fatalf("%s %s: %v", in.Method, in.Path, err)
		}
		return res
	}
	wants := func(status int, in action.HTTPInput) *httpexec.Result {
		t.Helper()
		res := do(cred, in)
		if res.Status != status {
			t.Errorf("%s %s: status %d, want %d\n%s", in.Method, in.Path, res.Status, status, res.Body)
		}
		return res
	}
	wants(200, action.HTTPInput{Method: "PUT", Path: "/bucket"})
	content := "the content of an object\n"
	for _, key := range []string{"plain.txt", "a/b/c.txt", "with space", "d$ollar&and+plus=x,y;z", "arn:aws:s3", "a@b!c(d)'e*", "%C3%A4%E1%88%B4", "tilde~under_score-dash.dot", "colon%3Aencoded", "[brackets]%22quotes%22"} {
		path := "/bucket/" + key
		wants(200, action.HTTPInput{Method: "PUT", Path: path, Body: &content, Headers: map[string]string{"Content-Type": "text/plain; charset=utf-8"}})
		if res := wants(200, action.HTTPInput{Method: "GET", Path: path, Headers: map[string]string{"If-None-Match": `"0"`, "X-Custom": "  two   spaces  "}}); string(res.Body) != content {
			t.Errorf("%s: %q came back", key, res.Body)
		}
		wants(200, action.HTTPInput{Method: "HEAD", Path: path})
	}
	list := wants(200, action.HTTPInput{Method: "GET", Path: "/bucket", Query: map[string][]string{"list-type": {"2"}, "prefix": {"a/b/"}, "delimiter": {"/"}, "start-after": {"a b+c"}, "max-keys": {"10"}}})
	if !strings.Contains(string(list.Body), "<Key>a/b/c.txt</Key>") {
		t.Errorf("the list is %s", list.Body)
	}
	wants(204, action.HTTPInput{Method: "DELETE", Path: "/bucket/plain.txt"})
	wants(404, action.HTTPInput{Method: "GET", Path: "/bucket/plain.txt"})

	wrong := cred
	wrong.Secret = []byte(id + ":another-s3cret-of-it")
	if res := do(wrong, action.HTTPInput{Method: "GET", Path: "/bucket"}); res.Status != 403 || !strings.Contains(string(res.Body), "SignatureDoesNotMatch") {
		t.Errorf("another secret: %d %s", res.Status, res.Body)
	}
	elsewhere := cred
	elsewhere.Region = "us-west-2"
	if res := do(elsewhere, action.HTTPInput{Method: "GET", Path: "/bucket"}); res.Status < 400 {
		t.Errorf("another region: %d %s", res.Status, res.Body)
	}
}
