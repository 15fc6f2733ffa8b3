package yetttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tracker is an issue tracker and a store of objects, as far as the tasks need
// them: what is created can be read again.
type tracker struct {
	mu      sync.Mutex
	issues  []map[string]any
	objects map[string]string
	deploys int
}

const (
	trackerToken = "tracker-token-0123456789"
	storeKey     = "AKIDTASKS0000000:store-secret-0123456789"
)

func (s *tracker) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+trackerToken {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var in map[string]any
	body, _ := io.ReadAll(r.Body)
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		json.Unmarshal(body, &in)
	}
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	switch target := r.Method + " " + r.URL.Path; {
	case target == "GET /v1/issues":
		page := r.URL.Query().Get("page")
		if page != "2" {
			w.Header().Set("Link", `</v1/issues?page=2>; rel="next"`)
			answer(200, s.issues[:min(2, len(s.issues))])
			return
		}
		answer(200, s.issues[min(2, len(s.issues)):])
	case target == "POST /v1/issues":
		in["number"], in["state"] = len(s.issues)+1, "open"
		s.issues = append(s.issues, in)
		answer(201, in)
	case strings.HasPrefix(target, "PATCH /v1/issues/"):
		var n int
		fmt.Sscan(filepath.Base(r.URL.Path), &n)
		for k, v := range in {
			s.issues[n-1][k] = v
		}
		answer(200, s.issues[n-1])
	case strings.HasPrefix(target, "POST /v1/issues/"):
		answer(201, map[string]any{"comment": in["body"]})
	case target == "GET /v1/builds": // some 300 KB
		var all []map[string]any
		for i := range 4000 {
			all = append(all, map[string]any{"id": i, "commit": fmt.Sprintf("%040x", i), "ok": i != 2718})
		}
		answer(200, map[string]any{"builds": all})
	case target == "GET /v1/log":
		w.Header().Set("Content-Type", "text/plain")
		for i := range 5000 {
			if i == 3141 {
				fmt.Fprintln(w, "ERROR disk /dev/sda1 is full")
			}
			fmt.Fprintf(w, "INFO request %d took 12 ms\n", i)
		}
	case target == "GET /v1/logo":
		w.Header().Set("Content-Type", "image/png")
		w.Write([]byte("\x89PNG\r\n\x1a\n\x00\x00"))
	case target == "POST /v1/form":
		answer(200, map[string]any{"type": r.Header.Get("Content-Type"), "fields": string(body)})
	case target == "GET /v1/busy":
		w.Header().Set("Retry-After", "30")
		answer(429, map[string]any{"message": "slow down"})
	case target == "POST /v1/deploys":
		s.deploys++
		answer(201, map[string]any{"deploy": s.deploys})
	default:
		answer(404, map[string]any{"message": "no such thing"})
	}
}

// store keeps objects for requests that are signed.
func (s *tracker) store(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDTASKS0000000/") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	switch {
	case r.Method == "PUT":
		body, _ := io.ReadAll(r.Body)
		s.objects[r.URL.Path] = string(body)
	case r.URL.Query().Get("list-type") == "2":
		for key, body := range s.objects {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", strings.TrimPrefix(key, "/bucket/"), len(body))
		}
	default:
		io.WriteString(w, s.objects[r.URL.Path])
	}
}

// TestEverydayTasks are twenty and some tasks of every day as an agent does them,
// by the tools and what they say alone, and a person who approves.
func TestEverydayTasks(t *testing.T) {
	at := reachableSSHD(t)
	s := &tracker{objects: map[string]string{}}
	for i, title := range []string{"crash at start", "typo in help", "slow list"} {
		s.issues = append(s.issues, map[string]any{"number": i + 1, "title": title, "state": "open"})
	}
	api, objects := StartUpstreamFunc(t, s.serve), StartUpstreamFunc(t, s.store)
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	work, host := filepath.Join(root, "work"), filepath.Join(root, "host")
	must(t, os.MkdirAll(work, 0o700))
	must(t, os.MkdirAll(host, 0o700))
	must(t, os.WriteFile(filepath.Join(host, "app.log"), []byte("started\nwarning: low memory\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(host, "app.conf"), []byte("debug = true\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(work, "app.conf"), []byte("debug = false\n"), 0o600))
	b := Start(t, fmt.Sprintf(`
[credential.tracker]
kind = "bearer"
origin = %[1]q

[credential.store]
kind = "sigv4"
service = "s3"
region = "eu-central-1"
origin = %[2]q

[credential.key]
kind = "ssh-key"

[host.web1]
address = %[3]q
user = %[4]q
key = "key"
host_keys = [%[5]q]

[capability."http:tracker.work"]
credential = "tracker"
methods = ["GET", "POST", "PATCH"]
paths = ["/v1/issues", "/v1/issues/**", "/v1/builds", "/v1/log", "/v1/logo", "/v1/form", "/v1/busy"]

[capability."http:tracker.deploy"]
credential = "tracker"
methods = ["POST"]
paths = ["/v1/deploys"]
confirm = "each"

[capability."http:store.bucket"]
credential = "store"
methods = ["GET", "PUT"]
paths = ["/bucket", "/bucket/**"]

[capability."ssh:web1.look"]
host = "web1"
commands = ["cat *", "test -e *", "sh -s", "seq 1 200000"]

[capability."ssh-copy:web1.app"]
host = "web1"
direction = "both"
remote = ["%[6]s/*"]
local = [%[7]q]
overwrite = true
`, api.URL, objects.URL, at.Address, at.User, at.HostKey, host, work),
		"tracker", trackerToken, "store", storeKey, "key", string(at.ClientKey))
	d := &daily{t: t, b: b, agent: b.startGoSDK(newestProtocol), work: work, host: host}

	for _, task := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"see what there is", func(t *testing.T) {
			d.call("list_access", map[string]any{}).wants(t, "none is granted", "http:tracker.work", "ssh-copy:web1.app", `"max_size":67108864`, `"direction":"both"`)
		}},
		{"ask for it", func(t *testing.T) { d.askForAll() }},
		{"list issues", func(t *testing.T) {
			d.http("GET", "/v1/issues", "query", map[string]any{"state": "open"}).wants(t, "HTTP 200", "crash at start")
		}},
		{"the next page", func(t *testing.T) {
			d.http("GET", "/v1/issues").wants(t, `rel=\"next\"`)
			d.http("GET", "/v1/issues", "query", map[string]any{"page": "2"}).wants(t, "slow list")
		}},
		{"create an issue", func(t *testing.T) {
			d.http("POST", "/v1/issues", "body_json", map[string]any{"title": "it's \"odd\"", "body": "two\nlines"}).wants(t, "HTTP 201", `"number":4`)
		}},
		{"comment on an issue", func(t *testing.T) {
			d.http("POST", "/v1/issues/4/comments", "body_json", map[string]any{"body": "seen on `main`"}).wants(t, "HTTP 201", "seen on")
		}},
		{"close an issue", func(t *testing.T) {
			d.http("PATCH", "/v1/issues/4", "body_json", map[string]any{"state": "closed"}).wants(t, "HTTP 200", `"state":"closed"`)
		}},
		{"fill in a form", func(t *testing.T) {
			d.http("POST", "/v1/form", "form", map[string]any{"name": "Ada L.", "tag": []string{"a", "b"}}).wants(t, "x-www-form-urlencoded", `name=Ada%20L.`)
		}},
		{"find one among many", func(t *testing.T) {
			ref := d.http("GET", "/v1/builds").wants(t, "read_result").ref(t, "body_ref")
			d.read(ref, "json", "/builds/2718/commit").wants(t, fmt.Sprintf("%040x", 2718))
			d.read(ref, "grep", `"ok":false`, "limit", 100_000).wants(t, "1:")
		}},
		{"search a log of a service", func(t *testing.T) {
			ref := d.http("GET", "/v1/log").wants(t, "read_result").ref(t, "body_ref")
			d.read(ref, "grep", "(?i)error", "context", 1).wants(t, "disk /dev/sda1 is full", "request 3140")
		}},
		{"read a long answer piece by piece", func(t *testing.T) {
			ref := d.http("GET", "/v1/log").ref(t, "body_ref")
			d.read(ref, "limit", 1000).wants(t, "request 0", "Next: read_result with offset")
		}},
		{"fetch an image", func(t *testing.T) {
			ref := d.http("GET", "/v1/logo").wants(t, "not text").ref(t, "body_ref")
			d.read(ref).wants(t, "base64", "iVBORw0KGgo")
		}},
		{"meet a limit of the service", func(t *testing.T) {
			d.http("GET", "/v1/busy").wants(t, "HTTP 429", `"Retry-After":"30"`)
		}},
		{"upload to a bucket", func(t *testing.T) {
			d.call("http_request", map[string]any{"capability": "http:store.bucket", "method": "PUT", "path": "/bucket/reports/june.txt",
				"headers": map[string]any{"Content-Type": "text/plain"}, "body": "all well\n"}).wants(t, "HTTP 200")
			d.call("http_request", map[string]any{"capability": "http:store.bucket", "method": "GET", "path": "/bucket",
				"query": map[string]any{"list-type": "2"}}).wants(t, "reports/june.txt", "<Size>9")
		}},
		{"start a deployment, once", func(t *testing.T) { d.deploy() }},
		{"check a service on a host", func(t *testing.T) {
			d.ssh("test -e "+host+"/app.conf").wants(t, "exit status 0")
			d.ssh("test -e "+host+"/app.pid").wants(t, "completed: exit status 1")
		}},
		{"look into a file of a host", func(t *testing.T) {
			d.call("ssh_run", map[string]any{"capability": "ssh:web1.look", "argv": []string{"cat", host + "/app.conf"}}).wants(t, "debug = true")
			d.ssh("cat "+host+"/nothing").wants(t, "exit status 1", "No such file")
		}},
		{"run a script there", func(t *testing.T) {
			d.call("ssh_run", map[string]any{"capability": "ssh:web1.look", "command": "sh -s", "stdin": "cd " + host + "\nls | wc -l\n"}).wants(t, "exit status 0", "2\n")
		}},
		{"search long output of a command", func(t *testing.T) {
			ref := d.ssh("seq 1 200000").wants(t, "read_result").ref(t, "stdout_ref")
			d.read(ref, "grep", "^123456$").wants(t, "123456:123456")
		}},
		{"fetch a log from a host", func(t *testing.T) {
			d.copy("down", "app.log", false).wants(t, "completed: copied", "28 bytes")
			d.has(filepath.Join(work, "app.log"), "started\nwarning: low memory\n")
		}},
		{"put a configuration on a host", func(t *testing.T) {
			d.copy("up", "app.conf", false).refused(t, "not_sent", "there already", "not to be overwritten")
			d.copy("up", "app.conf", true).wants(t, "copied over the file that was there")
			d.ssh("cat "+host+"/app.conf").wants(t, "debug = false")
		}},
		{"learn what may not be done", func(t *testing.T) {
			d.ssh("reboot").refused(t, "action_outside_capability", "yett access list")
			d.http("DELETE", "/v1/issues/4").refused(t, "action_outside_capability")
			d.ssh("cat a b").refused(t, "action_outside_capability")
		}},
	} {
		t.Run(task.name, task.do)
	}
	for _, secret := range []string{trackerToken, strings.TrimPrefix(storeKey, "AKIDTASKS0000000:")} {
		if strings.Contains(d.said.String(), secret) {
			t.Error("the agent was told a secret")
		}
	}
}

// daily is an agent at its work.
type daily struct {
	t          *testing.T
	b          *Broker
	agent      *goSDK
	work, host string
	said       strings.Builder
}

func (d *daily) call(tool string, arguments map[string]any) said {
	r := d.agent.call(tool, arguments)
	d.said.WriteString(r.text)
	return r
}

// with adds arguments given as name, value.
func with(arguments map[string]any, more []any) map[string]any {
	for i := 0; i+1 < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	return arguments
}

func (d *daily) http(method, path string, more ...any) said {
	return d.call("http_request", with(map[string]any{"capability": "http:tracker.work", "method": method, "path": path}, more))
}

func (d *daily) ssh(command string) said {
	return d.call("ssh_run", map[string]any{"capability": "ssh:web1.look", "command": command})
}

func (d *daily) copy(direction, name string, overwrite bool) said {
	return d.call("ssh_copy", map[string]any{"capability": "ssh-copy:web1.app", "direction": direction,
		"local": filepath.Join(d.work, name), "remote": filepath.Join(d.host, name), "overwrite": overwrite})
}

func (d *daily) read(ref string, more ...any) said {
	return d.call("read_result", with(map[string]any{"body_ref": ref}, more))
}

// ref is what a result names by reference.
func (s said) ref(t testing.TB, name string) string {
	t.Helper()
	m := regexp.MustCompile(`"` + name + `":"([^"]+)"`).FindStringSubmatch(s.text)
	if m == nil {
		t.Fatalf("no %s in %.500s", name, s.text)
	}
	return m[1]
}

func (d *daily) has(path, want string) {
	d.t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		d.t.Errorf("%s reads %q, %v", path, got, err)
	}
}

// askForAll asks for what the list shows; the person approves while the call
// waits.
func (d *daily) askForAll() {
	list := regexp.MustCompile(`"capability":"([^"]+)"`).FindAllStringSubmatch(d.call("list_access", map[string]any{}).text, -1)
	var names []string
	for _, m := range list {
		names = append(names, m[1])
	}
	slices.Sort(names)
	waiting := make(chan said)
	go func() {
		waiting <- d.call("request_access", map[string]any{"capabilities": names, "purpose": "the work of a day"})
	}()
	d.b.Approve(d.b.WaitCard(), "--for", "1h")
	(<-waiting).wants(d.t, "granted: ", "Next: http_request or ssh_copy or ssh_run")
}

// deploy is an action that is asked for each time, and must not happen twice.
func (d *daily) deploy() {
	arguments := map[string]any{"capability": "http:tracker.deploy", "method": "POST", "path": "/v1/deploys",
		"body_json": map[string]any{"version": "1.2"}, "idempotency_key": "deploy 1.2", "wait_ms": 0}
	queued := d.call("http_request", arguments).wants(d.t, "queued: ", "get_operation")
	d.b.Approve(d.b.WaitCard())
	d.call("get_operation", map[string]any{"operation_id": queued.operation(d.t).OperationID}).wants(d.t, "HTTP 201", `"deploy":1`)
	d.call("http_request", arguments).wants(d.t, "HTTP 201", `"deploy":1`)
}
