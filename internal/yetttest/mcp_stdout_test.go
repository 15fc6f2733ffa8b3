package yetttest

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/session"
)

// TestStdout_TheJudge: what must not stand on standard output is seen.
func TestStdout_TheJudge(t *testing.T) {
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`, `{"jsonrpc":"2.0","id":1,"result":{"text":"\u2028"}}`} {
		if why := impure([]byte(line + "\n")); why != "" {
			t.Errorf("%s: %s", line, why)
		}
	}
	for _, line := range []string{"", "printed by mistake", "panic: no", "{}", "[]", `{"jsonrpc":"1.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1}`,
		`{"jsonrpc":"2.0","id":1,"result":{}} more`, `{"jsonrpc":"2.0","id":1,"res`, `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\u2028\"}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\u2029\"}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r"} {
		if impure([]byte(line+"\n")) == "" {
			t.Errorf("not seen: %q", line)
		}
	}
	if impure([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)) == "" {
		t.Error("not seen: a line without an end")
	}
}

// In all of these host.take judges every line that yett-mcp prints.

// TestStdout_SignalInTheMiddle: yett-mcp is told to end while long answers are
// on their way; what it began it finishes.
func TestStdout_SignalInTheMiddle(t *testing.T) {
	big := strings.Repeat("0123456789abcde\n", 3<<10)
	up := StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(big)) })
	b := Start(t, up.Access(), "demo", canary)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		h := b.startShim().ready()
		id := h.grant("http:demo.read")
		const calls = 24
		for range calls {
			h.begin("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`)
		}
		first := fmt.Sprint(h.nextID - calls + 1)
		h.until("an answer", func() bool { return h.replies[first] != nil })
		must(t, h.cmd.Process.Signal(sig))
		if code := h.gone(); code != 0 {
			t.Errorf("%v: exit %d", sig, code)
		}
		if tail := h.closed(); len(tail) > 0 {
			t.Errorf("%v: an unfinished line of %d bytes: %.100q", sig, len(tail), tail)
		}
		b.ended(id, session.ShimExited, session.ChannelClosed)
	}
}

// TestStdout_CrashInTheMiddle: the Go runtime crashes as it does in a panic
// that nobody recovers, and writes its traces; they go to standard error.
func TestStdout_CrashInTheMiddle(t *testing.T) {
	b, _ := demoBroker(t)
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGQUIT, syscall.SIGABRT} {
		h := b.startShim().ready()
		id := h.call("request_access", `{"capabilities":["http:demo.read"],"wait_ms":0}`).session(t).SessionID
		h.begin("request_access", `{"capabilities":["http:demo.read"],"wait_ms":50000}`)
		for i := range 100 {
			h.send(request(fmt.Sprint("ping", i), "ping", "{}"))
		}
		h.await(`"ping50"`)
		must(t, h.cmd.Process.Signal(sig))
		if code := h.gone(); code == 0 {
			t.Errorf("%v: exit 0", sig)
		}
		if tail := h.closed(); len(tail) > 0 {
			t.Errorf("%v: standard output ends with %.200q", sig, tail)
		}
		h.complains("goroutine ")
		b.ended(id, session.ShimExited, session.ChannelClosed)
	}
}

// TestStdout_BrokerKilledInTheMiddle: each waiting call is answered at once, and
// says what is known of its action.
func TestStdout_BrokerKilledInTheMiddle(t *testing.T) {
	up, arrived := hangs(t)
	b := Start(t, up.Access(), "demo", canary)
	h := b.startShim().ready()
	h.grant("http:demo.read", "http:demo.write")
	const calls = 6
	for i := range calls {
		h.begin("http_request", fmt.Sprintf(`{"capability":"http:demo.write","method":"POST","path":"/v1/hang","body":"%d"}`, i))
		<-arrived
	}
	asks := h.begin("request_access", `{"capabilities":["http:demo.each"]}`)
	b.WaitCard()
	b.Kill()
	for i := range calls {
		h.await(fmt.Sprint(h.nextID-1-i)).said(t).refused(t, "outcome_unknown", "may or may not have been executed")
	}
	h.await(asks).said(t).refused(t, "unavailable", "Nothing was executed")
	h.call("list_access", "{}").refused(t, "unavailable", "yett up")
	h.send(request("ping", "ping", "{}"))
	h.await(`"ping"`)
	b.Serve()
	h.call("list_access", "{}").refused(t, "locked", "yett unlock")
	b.Unlock()
	h.call("list_access", "{}").wants(t, "This is a new session", "none is granted")
	if n := len(up.Seen()); n != calls {
		t.Errorf("%d requests, want %d", n, calls)
	}
}

// TestStdout_Imposter: who listens at the broker's path without being the
// installed yett gets not a byte.
func TestStdout_Imposter(t *testing.T) {
	b, _ := demoBroker(t)
	h := b.startShim().ready()
	h.call("list_access", "{}")
	b.Kill()
	ln, err := endpoint.Listen(b.Location())
	must(t, err)
	defer ln.Close()
	var got, came atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			go func() {
				defer c.Close()
				c.Write([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\u2028garbage\n"))
				n, _ := bufio.NewReader(c).ReadByte()
				if n != 0 {
					got.Add(1)
				}
			}()
		}
	}()
	for range 3 {
		h.call("list_access", "{}").refused(t, "unavailable", "was not proven to be Yett's broker")
	}
	if came.Load() == 0 || got.Load() != 0 {
		t.Errorf("%d connections, %d that said something", came.Load(), got.Load())
	}
}

// TestStdout_GarbageFromTheInstalledBroker: a broken broker, which is the
// installed program, says what it likes, before and after a proper greeting.
func TestStdout_GarbageFromTheInstalledBroker(t *testing.T) {
	dir := t.TempDir()
	must(t, copyFile(Bin("yett-mcp"), filepath.Join(dir, "yett-mcp"), 0o755))
	must(t, copyFile("/proc/self/exe", filepath.Join(dir, "yett"), 0o755))
	for _, answer := range []string{"garbage", "{}", "[]", "\x01\xff\xfe", "\u2028\u2029", `{"jsonrpc":"2.0","method":"tools/call","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":"\u2028` + "\u2028" + `"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"` + "a\u2028b" + `","data":{"code":"busy","next_step":"` + "c\u2029d" + `"}}}`,
		strings.Repeat("x", 100_000)} {
		for _, greeting := range []string{"", "hello+"} {
			if greeting != "" { // so that it answers the opening of the session
				answer = strings.Replace(answer, `"id":1`, `"id":2`, 1)
			}
			home := filepath.Join(t.TempDir(), "h")
			must(t, os.Mkdir(home, 0o700))
			fake := player("garbage", home, greeting+answer)
			fake.Path = filepath.Join(dir, "yett")
			out, err := fake.StdoutPipe()
			must(t, err)
			must(t, fake.Start())
			said := bufio.NewReader(out)
			if line, _ := said.ReadString('\n'); line != "listening\n" {
				t.Fatalf("the fake broker says %q", line)
			}
			h := (&Broker{T: t}).host(exec.Command(filepath.Join(dir, "yett-mcp"), "--home", home), nil).start().ready()
			for range 2 {
				if r := h.call("list_access", "{}"); !r.isError {
					t.Errorf("%.40q: %s", greeting+answer, r.text)
				}
			}
			h.send(request("ping", "ping", "{}"))
			h.await(`"ping"`)
			h.in.Close()
			if code := h.gone(); code != 0 {
				t.Errorf("exit %d", code)
			}
			if line, _ := said.ReadString('\n'); !strings.HasPrefix(line, "received ") {
				t.Errorf("yett-mcp did not speak to the fake broker: this test shows nothing")
			}
			fake.Process.Kill()
			fake.Wait()
		}
	}
}

// TestStdout_NobodyReadsStderr: what yett-mcp has to say there stops nothing.
func TestStdout_NobodyReadsStderr(t *testing.T) {
	b, _ := demoBroker(t)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	raw, err := w.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { // until it takes no more
		for block := bytes.Repeat([]byte("x"), 4096); len(block) > 0; {
			if _, err := syscall.Write(int(fd), block); err != nil {
				block = block[:len(block)/2]
			}
		}
	}))
	h := b.host(exec.Command(Bin("yett-mcp"), "--home", b.Home), w)
	h.start().ready()
	w.Close()
	for range 20 {
		h.call("list_access", "{}").wants(t, "none is granted")
	}
	h.send("garbage", `{"jsonrpc":"2.0","id":1,"method":"no/such"}`)
	h.await("null")
	b.Kill()
	h.call("list_access", "{}").refused(t, "unavailable")
	h.in.Close()
	if code := h.gone(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestStdout_AHostThatNeverReads does not keep yett-mcp alive, nor its session.
// The one line that was half taken is the only one that may stay a half.
func TestStdout_AHostThatNeverReads(t *testing.T) {
	big := strings.Repeat("0123456789abcde\n", 3<<10)
	up := StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(big)) })
	b := Start(t, up.Access(), "demo", canary)
	h := b.startShim().ready()
	id := h.grant("http:demo.read")
	h.pause()
	const calls = 40
	for range calls {
		h.begin("http_request", `{"capability":"http:demo.read","method":"GET","path":"/v1/x"}`)
	}
	outcomes := func() (n int) {
		for _, r := range b.Activity() {
			if r.Kind == "outcome" && r.SessionID == id {
				n++
			}
		}
		return n
	}
	for outcomes() < calls { // all is done but the reading
	}
	must(t, h.cmd.Process.Signal(syscall.SIGTERM))
	h.gone()
	b.ended(id, session.ShimExited, session.ChannelClosed)
	h.resume()
	if tail := h.closed(); len(tail) > 0 && !bytes.HasPrefix(tail, []byte(`{"jsonrpc":"2.0","id":`)) {
		t.Errorf("standard output ends with %.100q", tail)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.replies); n >= calls {
		t.Errorf("all of %d answers were taken: this test shows nothing", n)
	}
}
