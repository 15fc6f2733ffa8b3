package install

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// refused plans a connection that must be refused, and looks that nothing was
// written.
func refused(t *testing.T, p Place, id string, o Options) error {
	t.Helper()
	before := tree(t, p.Home)
	_, err := p.Connect(client(t, id), shim, o)
	if err == nil {
		t.Fatalf("%s: it was not refused", id)
	}
	if after := tree(t, p.Home); after != before {
		t.Fatalf("something was written:\n%s\nwas\n%s", after, before)
	}
	return err
}

// tree is every name below dir, with what lies there.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		all.WriteString(path + " " + e.Type().String())
		if e.Type().IsRegular() {
			all.WriteString(" " + read(t, path))
		}
		all.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestAttackLinkOutOfTheHome: a link that leads elsewhere is followed only
// where the person names the file.
func TestAttackLinkOutOfTheHome(t *testing.T) {
	p, elsewhere := home(t), home(t)
	target := lay(t, elsewhere, "settings.json", "{}")
	if err := errors.Join(os.Mkdir(p.path(".gemini"), 0o700), os.Symlink(target, p.path(".gemini/settings.json"))); err != nil {
		t.Fatal(err)
	}
	var unsafe *UnsafeError
	if err := refused(t, p, "gemini", Options{}); !errors.As(err, &unsafe) || unsafe.Real != target {
		t.Errorf("refused with %v", err)
	}
	if err := errors.Join(os.RemoveAll(p.path(".gemini")), os.Symlink(elsewhere.Home, p.path(".gemini"))); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, p, "gemini", Options{}); !errors.As(err, &unsafe) || unsafe.Real != target {
		t.Errorf("a directory elsewhere: refused with %v", err)
	}
	if got := read(t, target); got != "{}" {
		t.Errorf("the file elsewhere is %s", got)
	}
	connect(t, p, "gemini", Options{Config: target})
	if got := read(t, target); !strings.Contains(got, shim) {
		t.Errorf("named, it is %s", got)
	}
}

// TestF1_LinkWithinTheHome: dotfiles that are kept elsewhere in the home
// directory stay links, and the note says what changes.
func TestF1_LinkWithinTheHome(t *testing.T) {
	p := home(t)
	target := lay(t, p, "dotfiles/zed.json", "{\n  \"a\": 1\n}\n")
	link := p.path(".config/zed/settings.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink("../../dotfiles/zed.json", link)); err != nil {
		t.Fatal(err)
	}
	plan := connect(t, p, "zed", Options{})
	if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], target) {
		t.Errorf("notes %q", plan.Notes)
	}
	if to, err := os.Readlink(link); err != nil || to != "../../dotfiles/zed.json" || !strings.Contains(read(t, target), shim) {
		t.Errorf("the link is %q, %v", to, err)
	}
	disconnect(t, p, "zed")
	if got := read(t, target); got != "{\n  \"a\": 1\n}\n" {
		t.Errorf("taken away: %s", got)
	}
}

// TestAttackWhatIsNoFileOfOurs: links to nothing, pipes, directories, and files
// and directories of others.
func TestAttackWhatIsNoFileOfOurs(t *testing.T) {
	at := func(p Place) string { return p.path(".cursor/mcp.json") }
	for name, lay := range map[string]func(p Place) error{
		"a link to nothing": func(p Place) error { return os.Symlink(p.path("nothing"), at(p)) },
		"a pipe":            func(p Place) error { return syscall.Mkfifo(at(p), 0o600) },
		"a directory":       func(p Place) error { return os.Mkdir(at(p), 0o700) },
		"a directory that everybody may write to": func(p Place) error {
			return os.Chmod(filepath.Dir(at(p)), 0o777)
		},
	} {
		p := home(t)
		if err := errors.Join(os.Mkdir(filepath.Dir(at(p)), 0o700), lay(p)); err != nil {
			t.Fatal(err)
		}
		before := names(t, p.Home)
		if _, err := p.Connect(client(t, "cursor"), shim, Options{}); err == nil {
			t.Errorf("%s: it was not refused", name)
		}
		if after := names(t, p.Home); after != before {
			t.Errorf("%s: %s, was %s", name, after, before)
		}
	}
}

func names(t *testing.T, dir string) (all string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all += path + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAttackAnotherAccountsFile: neither a file nor a directory of another
// account is written to. Seen from the other side where the test is not root:
// the file is ours, and the place is another account's.
func TestAttackAnotherAccountsFile(t *testing.T) {
	p := home(t)
	path := lay(t, p, ".cursor/mcp.json", "{}")
	if os.Getuid() == 0 {
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		var unsafe *UnsafeError
		if err := refused(t, p, "cursor", Options{}); !errors.As(err, &unsafe) || !strings.Contains(err.Error(), "account 12345") {
			t.Errorf("refused with %v", err)
		}
		if err := errors.Join(os.Chown(path, 0, 0), os.Chown(filepath.Dir(path), 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if err := refused(t, p, "cursor", Options{}); !errors.As(err, &unsafe) || unsafe.Path != filepath.Dir(path) {
			t.Errorf("refused with %v", err)
		}
		return
	}
	other := p
	other.UID++
	refused(t, other, "cursor", Options{})
	refused(t, other, "cursor", Options{Config: path})
}

// TestF1_DamagedConfigurations: the error has the line, nothing is written.
func TestF1_DamagedConfigurations(t *testing.T) {
	for id, text := range map[string]string{
		"claude-code": "{\n  \"a\": 1,\n}\n", "cursor": "{\n  \"mcpServers\": {\n", "gemini": "{\n  \"a\": 1,\n}\n",
		"vscode": "{\n  \"servers\": [,]\n}\n", "zed": "{\n  \"a\" 1\n}\n", "codex": "[a]\nb = \n", "opencode": "{\n  \"mcp\": \"x\"\n}\n",
	} {
		p := home(t)
		c := client(t, id)
		lay(t, p, c.Files["linux"][0], text)
		var syntax *SyntaxError
		if err := refused(t, p, id, Options{}); !errors.As(err, &syntax) || syntax.Line < 2 {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestAttackServerOfTheSameName: an entry of that name that starts something
// else is neither replaced nor taken away.
func TestAttackServerOfTheSameName(t *testing.T) {
	p := home(t)
	theirs := `{"mcpServers": {"yett": {"command": "/usr/bin/other"}}}`
	path := lay(t, p, ".cursor/mcp.json", theirs)
	if err := refused(t, p, "cursor", Options{}); !errors.Is(err, ErrTaken) {
		t.Errorf("refused with %v", err)
	}
	if plan := disconnect(t, p, "cursor"); plan.Changed() || len(plan.Notes) != 1 {
		t.Errorf("taking away: %q", plan.Notes)
	}
	// Nor when they put it in the place of ours.
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	connect(t, p, "cursor", Options{})
	if err := os.WriteFile(path, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	disconnect(t, p, "cursor")
	if got := read(t, path); got != theirs {
		t.Errorf("it became %s", got)
	}
}

// TestF1_ChangedMeanwhile: a host that writes its file between the question and
// the answer loses nothing.
func TestF1_ChangedMeanwhile(t *testing.T) {
	p := home(t)
	path := lay(t, p, ".claude.json", "{\n  \"a\": 1\n}")
	plan, err := p.Connect(client(t, "claude-code"), shim, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{\n  \"a\": 2\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(plan); !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	if got := read(t, path); got != "{\n  \"a\": 2\n}" {
		t.Errorf("it became %s", got)
	}
	// The same where the file was not there when it was shown.
	q := home(t)
	plan, err = q.Connect(client(t, "claude-code"), shim, Options{})
	if err != nil {
		t.Fatal(err)
	}
	lay(t, q, ".claude.json", "{}")
	if _, err := q.Apply(plan); !errors.Is(err, ErrChanged) {
		t.Errorf("a new file: %v", err)
	}
}

// TestF1_Backups: each state of the file that was replaced stays beside it, and
// none replaces an earlier one.
func TestF1_Backups(t *testing.T) {
	p := home(t)
	path := lay(t, p, ".cursor/mcp.json", `{"first": 1}`)
	connect(t, p, "cursor", Options{})
	disconnect(t, p, "cursor")
	if err := os.WriteFile(path, []byte(`{"second": 2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	connect(t, p, "cursor", Options{})
	copies, err := filepath.Glob(path + BackupSuffix + "*")
	if err != nil || len(copies) != 3 || read(t, copies[0]) != `{"first": 1}` || read(t, copies[2]) != `{"second": 2}` {
		t.Errorf("%q, %v", copies, err)
	}
	for _, name := range copies {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestF1_MadeAndRemoved: a file and directories that were made go away with the
// entry, unless somebody else uses them by then.
func TestF1_MadeAndRemoved(t *testing.T) {
	for _, c := range Clients() {
		p := home(t)
		connect(t, p, c.ID, Options{Allow: c.ID == "zed" || c.ID == "claude-code" || c.ID == "codex"})
		disconnect(t, p, c.ID)
		if left := names(t, p.path(".local/state")) + strings.ReplaceAll(names(t, p.Home), p.Home+"\n", ""); strings.Count(left, "\n") > 3 {
			t.Errorf("%s: left\n%s", c.ID, left)
		}
	}
	p := home(t)
	connect(t, p, "vscode", Options{})
	path := p.path(".config/Code/User/mcp.json")
	used := strings.Replace(read(t, path), `"servers": {`, `"servers": {`+"\n    \"other\": {},", 1)
	if err := os.WriteFile(path, []byte(used), 0o600); err != nil {
		t.Fatal(err)
	}
	disconnect(t, p, "vscode")
	if got := read(t, path); got != "{\n  \"servers\": {\n    \"other\": {}\n  }\n}\n" {
		t.Errorf("it became\n%s", got)
	}
}

// TestF1_AnotherPlaceOfTheShim: after an update elsewhere the entry is
// corrected, and what the person added to it stays.
func TestF1_AnotherPlaceOfTheShim(t *testing.T) {
	for id, c := range map[string]struct{ file, text, want string }{
		"cursor":   {".cursor/mcp.json", `{"mcpServers": {"yett": {"command": "/old/yett-mcp", "args": ["x"], "timeout": 5}}}`, `"timeout": 5`},
		"opencode": {".config/opencode/opencode.json", `{"mcp": {"yett": {"type": "local", "command": ["/old/yett-mcp", "x"], "enabled": false}}}`, `"enabled": false`},
		"codex":    {".codex/config.toml", "[mcp_servers.yett]\ncommand = '/old/yett-mcp' # mine\nstartup_timeout_sec = 5\n", "startup_timeout_sec = 5"},
	} {
		p := home(t)
		path := lay(t, p, c.file, c.text)
		connect(t, p, id, Options{})
		got := read(t, path)
		if !strings.Contains(got, shim) || strings.Contains(got, "/old") || strings.Contains(got, `"x"`) || !strings.Contains(got, c.want) {
			t.Errorf("%s: it became\n%s", id, got)
		}
		if connect(t, p, id, Options{}).Changed() {
			t.Errorf("%s: a second time changes it", id)
		}
	}
}

// TestAttackRecord: a record that says something else than where entries are
// cannot remove what is not Yett's, and one that cannot be read stops
// everything.
func TestAttackRecord(t *testing.T) {
	p := home(t)
	path := lay(t, p, ".cursor/mcp.json", `{"mcpServers": {"other": {"command": "x"}, "yett": {"command": "/usr/bin/other"}}}`)
	write := func(text string) {
		t.Helper()
		if err := os.Chmod(lay(t, p, ".local/state/yett/installed.json", text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"version": 1, "files": {"` + path + `": {"client": "cursor", "created": true, "added": [{"at": ["mcpServers", "yett"], "made": 5}]}}}`)
	before := read(t, path)
	disconnect(t, p, "cursor")
	if got := read(t, path); got != before {
		t.Errorf("it became %s", got)
	}
	for _, text := range []string{"", "{", `{"version": 2}`} {
		write(text)
		var unreadable *RecordError
		if _, err := p.Disconnect(client(t, "cursor"), Options{}); !errors.As(err, &unreadable) {
			t.Errorf("%q: %v", text, err)
		}
		plan, err := p.Connect(client(t, "windsurf"), shim, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Apply(plan); !errors.As(err, &unreadable) {
			t.Errorf("%q: connecting: %v", text, err)
		}
		if _, err := os.Stat(p.path(".codeium/windsurf/mcp_config.json")); err == nil {
			t.Errorf("%q: something was written without a record", text)
		}
	}
}

// TestF1_HomeOfTheAccount: what is written lies below the home directory that
// was given, whatever the environment says.
func TestF1_HomeOfTheAccount(t *testing.T) {
	p, elsewhere := home(t), home(t)
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"} {
		t.Setenv(name, elsewhere.Home)
	}
	for _, c := range Clients() {
		connect(t, p, c.ID, Options{})
	}
	if left := names(t, elsewhere.Home); strings.Count(left, "\n") != 1 {
		t.Errorf("written elsewhere:\n%s", left)
	}
}

// TestDifference is what patch(1) would read.
func TestDifference(t *testing.T) {
	var before, after bytes.Buffer
	for i := range 40 {
		line := strings.Repeat("x", i+1) + "\n"
		before.WriteString(line)
		if i == 5 {
			after.WriteString("new\n")
		}
		if i != 30 {
			after.WriteString(line)
		}
	}
	f := &File{Path: "/f", Exists: true, Before: before.Bytes(), After: after.Bytes()}
	got := f.Difference()
	for _, want := range []string{"--- /f\n+++ /f\n@@ -3,6 +3,7 @@\n", "\n+new\n", "\n@@ -28,7 +29,6 @@\n", "\n-" + strings.Repeat("x", 31) + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 2+2+7+7 {
		t.Errorf("%d lines:\n%s", strings.Count(got, "\n"), got)
	}
}
