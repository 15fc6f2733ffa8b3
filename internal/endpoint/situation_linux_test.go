package endpoint

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A situation is what became of an earlier broker before the endpoint is made
// again: what was proven once is proven again in each.
var situations = map[string]func(w *world){
	"first start": func(*world) {},
	"after kill -9": func(w *world) {
		c := w.serve(w.path("home"))
		c.expect("listening")
		c.kill()
	},
	"after a clean end": func(w *world) {
		c := w.serve(w.path("home"))
		c.expect("listening")
		c.end()
	},
	"after an update": func(w *world) { // the program was replaced under a broker, which then crashed
		c := w.serve(w.path("home"))
		c.expect("listening")
		w.install("bin/new")
		must(w.t, os.Rename(w.path("bin/new"), w.path("bin/yett")))
		c.kill()
	},
	"after a logout": func(w *world) { // the directory went under a broker, which saw it and ended
		c := w.serve(w.path("home"))
		c.expect("listening")
		must(w.t, os.RemoveAll(w.path(runDir)))
		c.say("?")
		if s := c.expect("holds"); s.Kind != "lost" || s.Path != w.path(sock) {
			w.t.Errorf("without its directory the broker says %+v", s)
		}
		if s := w.dial("bin/yett-mcp").expect("dialled"); s.Cause != NotRunning {
			w.t.Errorf("a client says %+v", s)
		}
		if s := c.end(); s.Error != "" {
			w.t.Errorf("closing: %s", s.Error)
		}
	},
}

func TestE4_AgainInEverySituation(t *testing.T) {
	for name, come := range situations {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			come(w)
			c := w.start("bin/yett", "as-serve", []string{w.path("home"), "000"})
			s := c.expect("listening")
			if mode := perm(t, w.path(runDir)); mode != 0o700 { // C1
				t.Errorf("the directory has mode %04o", mode)
			}
			if mode := perm(t, w.path(sock)); mode != 0o600 {
				t.Errorf("the socket has mode %04o", mode)
			}
			check := w.untouched(w.path(sock))
			if second := w.serve(w.path("home")).expect("failed"); second.Kind != "in-use" || second.Holder.PID != s.PID { // C7
				t.Errorf("a second broker says %+v, want in use by %d", second, s.PID)
			}
			if d := w.dial("bin/yett-mcp").expect("dialled"); d.Error != "" || d.PID != s.PID {
				t.Errorf("a client says %+v, want process %d", d, s.PID)
			}
			check()
			c.say("?")
			if h := c.expect("holds"); h.Error != "" {
				t.Errorf("the broker says of its path %+v", h)
			}
			must(t, os.Remove(w.path(sock))) // C8
			must(t, os.WriteFile(w.path(sock), []byte("kept"), 0o600))
			w.give(sock, w.uid)
			check = w.untouched(w.path(sock))
			if e := c.end(); e.Kind != "unsafe" || !strings.Contains(e.Error, "another object") {
				t.Errorf("closing says %+v", e)
			}
			if again := w.serve(w.path("home")).expect("failed"); again.Kind != "unsafe" { // C2
				t.Errorf("a broker over a regular file says %+v", again)
			}
			check()
		})
	}
}

// An obstacle stands where the socket should be; some only root can put there.
var obstacles = []struct {
	name, says string
	root       bool
	put        func(w *world) (clear func())
}{
	{"regular file", "regular file", false, func(w *world) func() {
		must(w.t, os.WriteFile(w.path(sock), []byte("kept"), 0o600))
		w.give(sock, w.uid)
		return func() { must(w.t, os.Remove(w.path(sock))) }
	}},
	{"symbolic link to a socket", "symbolic link", false, func(w *world) func() {
		w.deadSocket("home/elsewhere")
		must(w.t, os.Symlink(w.path("home/elsewhere"), w.path(sock)))
		return func() { must(w.t, errors.Join(os.Remove(w.path(sock)), os.Remove(w.path("home/elsewhere")))) }
	}},
	{"live stranger", "process ", false, func(w *world) func() {
		c := w.start("bin/other", "as-fake", []string{w.path(sock)})
		c.expect("listening")
		return func() { c.kill(); must(w.t, os.Remove(w.path(sock))) }
	}},
	{"foreign socket", "uid 61002", true, func(w *world) func() {
		w.deadSocket(sock)
		w.give(sock, otherUID)
		return func() { must(w.t, os.Remove(w.path(sock))) }
	}},
	{"symlinked directory", "symbolic link", false, func(w *world) func() {
		must(w.t, os.Rename(w.path(runDir), w.path("home/moved")))
		must(w.t, os.Symlink(w.path("home/moved"), w.path(runDir)))
		return func() {
			must(w.t, errors.Join(os.Remove(w.path(runDir)), os.Rename(w.path("home/moved"), w.path(runDir))))
		}
	}},
	{"foreign directory", "uid 61002", true, func(w *world) func() {
		w.give(runDir, otherUID)
		return func() { w.give(runDir, w.uid) }
	}},
}

// strangers take the path of a broker that lives.
var strangers = map[string]func(w *world){
	"socket":        func(w *world) { w.deadSocket(sock) },
	"regular file":  func(w *world) { must(w.t, os.WriteFile(w.path(sock), []byte("kept"), 0o600)) },
	"symbolic link": func(w *world) { must(w.t, os.Symlink("elsewhere", w.path(sock))) },
}

// The attacks of C2 and C8 in every situation under every umask: what stands in
// the way is refused by its reason and left as it is, whatever became of the
// broker before, and no mode is made wider or narrower to get past it; a node
// that took a living broker's path stays when it ends.
func TestE4_AttacksInEverySituationUnderEveryUmask(t *testing.T) {
	for situation, come := range situations {
		for _, umask := range []string{"000", "077", "0777"} {
			t.Run(situation+" "+umask, func(t *testing.T) {
				w := newWorld(t)
				come(w)
				if _, err := os.Lstat(w.path(runDir)); errors.Is(err, os.ErrNotExist) {
					w.own(runDir)
				}
				start := func() *child { return w.start("bin/yett", "as-serve", []string{w.path("home"), umask}) }
				if _, err := os.Lstat(w.path(sock)); err == nil { // the leftover of a broker that was killed goes when it is proven
					c := start()
					c.expect("listening")
					c.end()
				}
				for _, o := range obstacles {
					if o.root && os.Getuid() != 0 {
						continue // needsRoot tells it in TestC02_RefusedAndUntouched
					}
					clear := o.put(w)
					check := w.untouched(w.path(sock))
					if s := start().expect("failed"); s.Kind != "unsafe" || !strings.Contains(s.Error, o.says) {
						t.Errorf("%s: the broker says %+v, want …%s…", o.name, s, o.says)
					}
					check()
					clear()
				}
				for name, put := range strangers {
					c := start()
					c.expect("listening")
					must(t, os.Remove(w.path(sock)))
					put(w)
					check := w.untouched(w.path(sock))
					c.say("?")
					if s := c.expect("holds"); s.Kind != "lost" {
						t.Errorf("%s: the broker says of its path %+v", name, s)
					}
					if s := c.end(); s.Kind != "unsafe" || !strings.Contains(s.Error, "another object") {
						t.Errorf("%s: closing says %+v", name, s)
					}
					check()
					must(t, os.Remove(w.path(sock)))
				}
				c := start()
				c.expect("listening")
				if mode := perm(t, w.path(sock)); mode != 0o600 || perm(t, w.path(runDir)) != 0o700 {
					t.Errorf("after all that the socket has mode %04o", mode)
				}
			})
		}
	}
}

func TestDialTellsCausesApart(t *testing.T) {
	t.Run("stopped", func(t *testing.T) {
		w := newWorld(t)
		c := w.serve(w.path("home"))
		pid := c.expect("listening").PID
		c.stop()
		s := w.dial("bin/yett-mcp").expect("dialled")
		if s.Cause != NotAnswering || !strings.Contains(s.Error, fmt.Sprint("process ", pid)) {
			t.Errorf("dialling a stopped broker said %+v", s)
		}
	})
	t.Run("no rights", func(t *testing.T) {
		w := newWorld(t)
		w.serve(w.path("home")).expect("listening")
		must(t, os.Chmod(w.path("home"), 0))
		defer os.Chmod(w.path("home"), 0o700)
		if s := w.dial("bin/yett-mcp").expect("dialled"); s.Cause != Forbidden {
			t.Errorf("dialling without rights said %+v", s)
		}
	})
}
