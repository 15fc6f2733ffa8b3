//go:build linux

package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// accountWorld is a world with an account database and a /run/user of its own.
type accountWorld struct {
	*world
	passwd  string
	runUser string
}

func newAccountWorld(t *testing.T) *accountWorld {
	t.Helper()
	needsRoot(t)
	w := &accountWorld{world: newWorld(t)}
	w.passwd, w.runUser = w.path("etc/passwd"), w.path("runuser")
	must(t, os.Mkdir(w.path("etc"), 0o755))
	must(t, os.WriteFile(w.passwd, []byte("root:x:0:0:root:/root:/bin/sh\n"+
		fmt.Sprintf("person:x:%d:%d:A Person,,,:%s:/bin/sh\n", w.uid, w.uid, w.path("home"))), 0o644))
	must(t, os.Chmod(w.passwd, 0o644))
	must(t, os.Mkdir(w.runUser, 0o755))
	return w
}

func (w *accountWorld) run(mode string, env ...string) *child {
	w.t.Helper()
	return w.start("bin/yett", "as-in-namespace",
		[]string{fmt.Sprint(w.uid), w.passwd, w.runUser, mode},
		asUID(0), withEnv(env...),
		option(func(c *exec.Cmd) { c.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS }))
}

func (w *accountWorld) runtimeDirectory() string {
	return w.own(fmt.Sprint("runuser/", w.uid))
}

// hostile are environments that a program host may hand down.
func hostile(w *world) map[string][]string {
	wide := w.path("wide")
	must(w.t, os.Mkdir(wide, 0o777))
	must(w.t, os.Chmod(wide, 0o777))
	foreign := w.own("foreign")
	w.give("foreign", otherUID)
	return map[string][]string{
		"empty":             {},
		"PATH alone":        {"PATH=/usr/bin"},
		"HOME of another":   {"PATH=/usr/bin", "HOME=/root", "USER=root", "LOGNAME=root"},
		"foreign runtime":   {"HOME=" + w.path("home"), "XDG_RUNTIME_DIR=" + foreign},
		"runtime open wide": {"XDG_RUNTIME_DIR=" + wide, "TMPDIR=" + wide},
		"every name": {
			"HOME=" + wide, "XDG_RUNTIME_DIR=" + wide, "XDG_DATA_HOME=" + wide, "XDG_STATE_HOME=" + wide, "TMPDIR=" + wide,
			"YETT_HOME=" + wide, "YETT_SOCKET=" + wide + "/s", "YETT_BROKER=" + wide + "/b", "YETT_DAEMON_PATH=" + wide + "/b",
			"LISTEN_FDS=1", "LISTEN_PID=1",
		},
	}
}

func TestU05_FoundUnderAnyEnvironment(t *testing.T) {
	for _, runtime := range []bool{true, false} {
		t.Run(fmt.Sprintf("runtime directory %v", runtime), func(t *testing.T) {
			w := newAccountWorld(t)
			want := Location{Home: w.path("home/.local/share/yett"), Socket: w.path("home/.local/state/yett/run/broker.sock")}
			if runtime {
				w.runtimeDirectory()
				want.Socket = fmt.Sprintf("/run/user/%d/yett/broker.sock", w.uid)
			}
			broker := w.run("as-serve-default", "HOME=/root", "XDG_RUNTIME_DIR=/root")
			if s := broker.expect("listening"); s.Location != want {
				t.Fatalf("the broker is at %+v, want %+v", s.Location, want)
			}
			for name, env := range hostile(w.world) {
				d := w.run("as-dial-default", env...)
				if s := d.expect("dialled"); s.Error != "" {
					t.Errorf("%s: dialling said %+v", name, s)
					continue
				}
				if s := d.expect("read"); s.Bytes != "hello\n" {
					t.Errorf("%s: read %+v", name, s)
				}
			}
		})
	}
}

func TestU05_RuntimeDirectoryMustBeOurs(t *testing.T) {
	tests := map[string]func(w *accountWorld, dir string){
		"absent":     func(w *accountWorld, dir string) { must(w.t, os.Remove(dir)) },
		"open wide":  func(w *accountWorld, dir string) { must(w.t, os.Chmod(dir, 0o777)) },
		"readable":   func(w *accountWorld, dir string) { must(w.t, os.Chmod(dir, 0o755)) },
		"of another": func(w *accountWorld, dir string) { must(w.t, os.Chown(dir, otherUID, otherUID)) },
		"a link": func(w *accountWorld, dir string) {
			w.own("x")
			must(w.t, os.Remove(dir))
			must(w.t, os.Symlink(w.path("x"), dir))
		},
		"a plain file": func(w *accountWorld, dir string) {
			must(w.t, os.Remove(dir))
			must(w.t, os.WriteFile(dir, nil, 0o700))
			must(w.t, os.Chown(dir, w.uid, w.uid))
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			w := newAccountWorld(t)
			spoil(w, w.runtimeDirectory())
			s := w.run("as-default", "XDG_RUNTIME_DIR="+w.path("home")).expect("location")
			if want := w.path("home/.local/state/yett/run/broker.sock"); s.Error != "" || s.Location.Socket != want {
				t.Errorf("the location is %+v, want %s", s, want)
			}
		})
	}
}

func TestU05_HomeComesFromTheAccountDatabase(t *testing.T) {
	w := newAccountWorld(t)
	link := w.path("linked-home")
	must(t, os.Symlink(w.path("home"), link))
	tests := []struct{ name, passwd, home, why string }{
		{"no entry", "root:x:0:0:root:/root:/bin/sh\n", "", "no entry"},
		{"relative home", fmt.Sprintf("p:x:%d:1::home:/bin/sh\n", w.uid), "", "not an absolute path"},
		{"empty home", fmt.Sprintf("p:x:%d:1:::/bin/sh\n", w.uid), "", "not an absolute path"},
		{"linked home", fmt.Sprintf("p:x:%d:1::%s:/bin/sh\n", w.uid, link), w.path("home"), ""},
		{"first entry counts", fmt.Sprintf("#p:x:%[1]d:1::/no:/bin/sh\nbroken:%[1]d\np:x:%[1]d:1::%[2]s:/bin/sh\nq:x:%[1]d:1::/no:/bin/sh\n", w.uid, w.path("home")), w.path("home"), ""},
	}
	for _, test := range tests {
		must(t, os.WriteFile(w.passwd, []byte(test.passwd), 0o644))
		s := w.run("as-default", "HOME="+w.path("home"), "USER=person").expect("location")
		switch {
		case test.why != "" && !strings.Contains(s.Error, test.why):
			t.Errorf("%s: %+v, want …%s…", test.name, s, test.why)
		case test.why == "" && s.Location.Home != filepath.Join(test.home, ".local/share/yett"):
			t.Errorf("%s: %+v, want the home %s", test.name, s, test.home)
		}
	}
}

func TestU05_EnvironmentChoosesNothing(t *testing.T) {
	w := newWorld(t)
	w.uid = os.Getuid() // an account that this machine knows
	want := w.start("bin/yett", "as-default", nil).expect("location")
	for name, env := range hostile(w) {
		if s := w.start("bin/yett", "as-default", nil, withEnv(env...)).expect("location"); s != want {
			t.Errorf("%s: %+v, want %+v", name, s, want)
		}
	}
}

func TestInHomeResolvesLinksAboveOnce(t *testing.T) {
	w := newWorld(t)
	must(t, os.Symlink(w.path("home"), w.path("link")))
	must(t, os.Symlink("link", w.path("twice")))
	l, err := InHome(w.path("twice/h"))
	must(t, err)
	if want := (Location{Home: w.path("home/h"), Socket: w.path("home/h/run/broker.sock"), Test: true}); l != want {
		t.Errorf("location is %+v, want %+v", l, want)
	}
	w.serve(w.path("twice/h")).expect("listening")
	w.start("bin/yett", "as-dial", []string{w.path("home/h")}).expect("dialled")

	if l, err := InHome(w.path("home/missing/h")); err != nil || l.Home != w.path("home/missing/h") {
		t.Errorf("below a missing directory: %+v, %v", l, err)
	}
	if l, err := InHome(""); err == nil {
		t.Errorf("an empty name gives %+v", l)
	}
	must(t, os.Symlink("loop", w.path("loop")))
	var unsafe *UnsafeError
	if _, err := InHome(w.path("loop/h")); !errors.As(err, &unsafe) {
		t.Errorf("a loop of links: %v", err)
	}
}

func TestInHomeFollowsNoForeignLink(t *testing.T) {
	needsRoot(t)
	w := newWorld(t)
	must(t, os.Symlink(w.path("home"), w.path("link")))
	w.give("link", otherUID)
	if s := w.serve(w.path("link/h")).expect("failed"); s.Kind != "unsafe" || s.Path != w.path("link") {
		t.Errorf("through another account's link: %+v", s)
	}
}

func TestC11_HomeIsLabelled(t *testing.T) {
	w := newWorld(t)
	l, err := InHome(w.path("home"))
	must(t, err)
	if !l.Test {
		t.Error("a location that was chosen by hand is not labelled")
	}
	s := w.start("bin/yett", "as-default", nil, asUID(os.Getuid())).expect("location")
	if s.Location.Test {
		t.Errorf("the contract's own location is labelled: %+v", s)
	}
}

func TestCheckRefusesRelativePaths(t *testing.T) {
	for _, l := range []Location{{}, {Home: "h", Socket: "/s"}, {Home: "/h", Socket: "s"}, {Home: "/h/../i", Socket: "/s"}, {Home: "/h", Socket: "/a//s"}} {
		if err := l.Check(); err == nil {
			t.Errorf("%+v passes", l)
		}
		if _, err := Listen(l); err == nil {
			t.Errorf("listening at %+v works", l)
		}
	}
}

func FuzzParseState(f *testing.F) {
	good, err := json.Marshal(state{holder{1, 7, 8, "boot", "/bin/yett", "/s"}, identity{1, 2, 3}})
	if err != nil {
		f.Fatal(err)
	}
	seeds := []string{string(good), "", "{}", "null", "[]", `{"version":1}`, `{"version":1,"pid":7}`, `{"version":2,"pid":7}`,
		`{"version":1,"pid":-1}`, `{"version":1,"pid":7} x`, `{"version":1,"pid":7,"more":1}`, string(good[:20])}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseState(b)
		if err != nil {
			if s != (state{}) {
				t.Errorf("refused, and yet %+v", s)
			}
			return
		}
		if s.PID <= 0 || s.Version != recordVersion {
			t.Errorf("accepted %+v", s)
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseState(again); err != nil || back != s {
			t.Errorf("%+v comes back as %+v, %v", s, back, err)
		}
	})
}

func FuzzHomeIn(f *testing.F) {
	seeds := []string{"root:x:0:0:root:/root:/bin/sh\n", "p:x:61001:1::/home/p:/bin/sh", "", ":::::::", "p:x:61001:1::rel:/bin/sh\n",
		"p:x:-1:1::/h:/s\n", "p:x:061001:1::/h:/s\n", "p:x:61001:1::/h/../i:/s\n", strings.Repeat("x", 100_000)}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, passwd string) {
		home, err := homeIn(strings.NewReader(passwd), 61001)
		if err == nil && (!filepath.IsAbs(home) || filepath.Clean(home) != home || !strings.Contains(passwd, "61001")) {
			t.Errorf("home %q from %q", home, passwd)
		}
	})
}
