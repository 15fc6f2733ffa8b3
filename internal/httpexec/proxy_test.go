package httpexec

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

func TestMain(m *testing.M) {
	if port := os.Getenv("HTTPEXEC_TEST_UPSTREAM"); port != "" {
		proxyHelper(port)
		return
	}
	os.Exit(m.Run())
}

// proxyHelper runs in a process whose environment names proxies. The name is
// not localhost, for which net/http makes an exception.
func proxyHelper(port string) {
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	o := Options{OwnPorts: func() []int { return nil }}
	resolving("127.0.0.1")(&o)
	for _, scheme := range []string{"http", "https"} {
		target := Target{Scheme: scheme, Host: "api.example.test", Port: n, Private: true, Timeout: 5 * time.Second}
		res, err := New(o).Do(context.Background(), target, bearer, action.HTTP{Method: "GET", Path: "/by-yett"})
		fmt.Println(scheme, err == nil && res.Status == 200)
	}
	// The same environment does lead net/http to the proxy: the trap is real.
	resp, err := http.Get("http://api.example.test:" + port + "/by-net-http")
	fmt.Println("net/http", err == nil && resp.StatusCode == 200)
}

func TestH20_ProxyFromEnvironmentIsIgnored(t *testing.T) {
	proxy := newRawServer(t, answers(ok))
	upstream := newRawServer(t, answers(ok))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	through := fmt.Sprintf("http://u:p@127.0.0.1:%d", proxy.port())
	cmd.Env = []string{"HTTPEXEC_TEST_UPSTREAM=" + strconv.Itoa(upstream.port())}
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		cmd.Env = append(cmd.Env, name+"="+through, strings.ToUpper(name)+"="+through)
	}
	out, err := cmd.CombinedOutput()
	if want := "http true\nhttps false\nnet/http true\n"; err != nil || string(out) != want {
		t.Errorf("helper: %v, %q, want %q", err, out, want)
	}
	if heads := upstream.heads(); len(heads) != 1 || !strings.HasPrefix(heads[0], "GET /by-yett ") {
		t.Errorf("the upstream got %q", heads)
	}
	if heads := proxy.heads(); len(heads) != 1 || !strings.Contains(heads[0], "/by-net-http ") || strings.Contains(heads[0], "Bearer") {
		t.Errorf("the proxy got %q", heads)
	}
}
