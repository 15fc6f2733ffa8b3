//go:build linux || darwin

package localfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yett-broker/yett/internal/localfile"
)

// tree is a declared directory with what an agent might put into it, and a file
// outside that it must not reach.
func tree(t *testing.T) (dir, outside string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, outside = filepath.Join(root, "in"), filepath.Join(root, "secret")
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.MkdirAll(at("sub"), 0o700),
		os.WriteFile(outside, []byte("a secret"), 0o600),
		os.WriteFile(at("plain"), []byte("plain"), 0o600),
		os.WriteFile(at("sub/plain"), []byte("below"), 0o600),
		os.Symlink(outside, at("link")),
		os.Symlink(root, at("up")),
		os.Symlink("plain", at("inside")),
		os.Link(outside, at("hard")),
		syscall.Mkfifo(at("fifo"), 0o600),
		os.Symlink(dir, filepath.Join(root, "alias")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, outside
}

func TestOpen(t *testing.T) {
	dir, _ := tree(t)
	for name, want := range map[string]string{"plain": "plain", "sub/plain": "below"} {
		f, err := localfile.Open(dir, filepath.Join(dir, name), localfile.Apart{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("%s reads %q, %v", name, got, err)
		}
	}
}

func TestOpenReachesNothingElse(t *testing.T) {
	dir, outside := tree(t)
	root := filepath.Dir(dir)
	for name, c := range map[string][2]string{
		"a symbolic link out":                 {dir, dir + "/link"},
		"a symbolic link inside":              {dir, dir + "/inside"},
		"a symbolic link on the way":          {dir, dir + "/up/secret"},
		"a hard link":                         {dir, dir + "/hard"},
		"dots":                                {dir, dir + "/../secret"},
		"dots after a link":                   {dir, dir + "/sub/../../secret"},
		"another directory":                   {dir, outside},
		"a directory with the same start":     {dir, dir + "side/secret"},
		"a declared directory that is a link": {root + "/alias", root + "/alias/plain"},
		"a FIFO":                              {dir, dir + "/fifo"},
		"a directory":                         {dir, dir + "/sub"},
		"nothing":                             {dir, dir + "/nothing"},
		"the directory itself":                {dir, dir},
		"a magic link":                        {"/proc/self", "/proc/self/exe"},
		"a relative directory":                {"in", "in/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := localfile.Open(c[0], c[1], localfile.Apart{})
			if err == nil {
				got, _ := io.ReadAll(io.LimitReader(f, 100))
				t.Fatalf("opened: %q", got)
			}
		})
	}
}

func TestCreateAndPlace(t *testing.T) {
	dir, _ := tree(t)
	for _, c := range []struct {
		name      string
		overwrite bool
		replaced  bool
	}{{"new", false, false}, {"sub/new", true, false}, {"plain", true, true}} {
		file := filepath.Join(dir, c.name)
		n, err := localfile.Create(dir, file, c.overwrite, localfile.Apart{})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(n, "content")
		if before, err := os.ReadFile(file); err == nil && string(before) == "content" {
			t.Errorf("%s: in its place before Place", c.name)
		}
		replaced, err := n.Place(c.overwrite)
		if err := errors.Join(err, n.Close()); err != nil || replaced != c.replaced {
			t.Fatalf("%s: replaced %v, %v", c.name, replaced, err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", c.name, info, err)
		}
		if got, _ := os.ReadFile(file); string(got) != "content" {
			t.Errorf("%s reads %q", c.name, got)
		}
	}
}

func TestCreateReachesNothingElse(t *testing.T) {
	dir, outside := tree(t)
	root := filepath.Dir(dir)
	for name, file := range map[string]string{
		"a symbolic link out":        dir + "/link",
		"a symbolic link on the way": dir + "/up/new",
		"dots":                       dir + "/../new",
		"another directory":          root + "/new",
		"a FIFO":                     dir + "/fifo",
		"a directory":                dir + "/sub",
		"below nothing":              dir + "/nothing/new",
		"below a file":               dir + "/plain/new",
	} {
		t.Run(name, func(t *testing.T) {
			n, err := localfile.Create(dir, file, true, localfile.Apart{})
			if err == nil {
				n.Close()
				t.Fatal("created")
			}
		})
	}
	if n, err := localfile.Create(root+"/alias", root+"/alias/new", true, localfile.Apart{}); err == nil {
		n.Close()
		t.Error("created below a declared directory that is a link")
	}
	if _, err := localfile.Create(dir, dir+"/plain", false, localfile.Apart{}); !errors.Is(err, localfile.ErrExists) {
		t.Errorf("over a file: %v", err)
	}
	if got, _ := os.ReadFile(outside); string(got) != "a secret" {
		t.Errorf("the file outside reads %q", got)
	}
	noParts(t, dir)
}

// What comes to the place meanwhile is not replaced, and a link is not followed.
func TestPlaceMeetsWhatCameMeanwhile(t *testing.T) {
	dir, outside := tree(t)
	file := filepath.Join(dir, "new")
	n, err := localfile.Create(dir, file, false, localfile.Apart{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, file); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Place(false); !errors.Is(err, localfile.ErrExists) {
		t.Errorf("over a link that came: %v", err)
	}
	if _, err := n.Place(true); err != nil { // the link itself is replaced
		t.Error(err)
	}
	n.Close()
	if got, _ := os.ReadFile(outside); string(got) != "a secret" {
		t.Errorf("the file outside reads %q", got)
	}
	noParts(t, dir)
}

// The directory is held: renaming it away and putting a link in its place leads
// nowhere else.
func TestDirectoryIsHeld(t *testing.T) {
	dir, _ := tree(t)
	elsewhere := t.TempDir()
	n, err := localfile.Create(dir, filepath.Join(dir, "sub/new"), false, localfile.Apart{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := errors.Join(os.Rename(dir+"/sub", dir+"/moved"), os.Symlink(elsewhere, dir+"/sub")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Place(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/moved/new"); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(elsewhere); len(entries) != 0 {
		t.Errorf("something came elsewhere: %v", entries)
	}
}

func TestWhatIsNotPlacedIsRemoved(t *testing.T) {
	dir, _ := tree(t)
	n, err := localfile.Create(dir, filepath.Join(dir, "new"), false, localfile.Apart{})
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(n, "part")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	noParts(t, dir)
}

func noParts(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".yett-") {
			t.Errorf("a part is left: %s", e.Name())
		}
	}
}

// Directories that are kept out of are so under every name, and above the
// declared directory as well.
func TestKeptOut(t *testing.T) {
	dir, _ := tree(t)
	root := filepath.Dir(dir)
	if err := os.Symlink(dir+"/sub", root+"/alias of sub"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ in, file, keepOut string }{
		"the directory":                {dir, dir + "/plain", dir},
		"a directory below":            {dir, dir + "/sub/plain", dir + "/sub"},
		"above the declared one":       {dir + "/sub", dir + "/sub/plain", dir},
		"by another name":              {dir, dir + "/sub/plain", root + "/alias of sub"},
		"above, by another name":       {dir + "/sub", dir + "/sub/plain", root + "/alias"},
		"the place of one that is not": {dir, dir + "/missing", dir + "/missing"},
	} {
		t.Run(name, func(t *testing.T) {
			apart := localfile.Apart{Trees: []string{root + "/nothing", c.keepOut}}
			if f, err := localfile.Open(c.in, c.file, apart); !errors.Is(err, localfile.ErrKeptOut) {
				t.Errorf("opened for reading: %v, %v", f, err)
			}
			if n, err := localfile.Create(c.in, c.file, true, apart); !errors.Is(err, localfile.ErrKeptOut) {
				t.Errorf("created: %v, %v", n, err)
			}
		})
	}
	for _, apart := range []string{dir + "/sub", root + "/alias of sub", root + "/nothing", dir + "/pla"} {
		f, err := localfile.Open(dir, dir+"/plain", localfile.Apart{Trees: []string{apart}})
		if err != nil {
			t.Errorf("beside %s: %v", apart, err)
			continue
		}
		f.Close()
	}
	for in, want := range map[string]error{dir + "/sub": localfile.ErrKeptOut, dir: nil} { // not what lies below
		n, err := localfile.Create(in, in+"/new", false, localfile.Apart{Directories: []string{root + "/alias of sub", root, root + "/nothing"}})
		if !errors.Is(err, want) {
			t.Errorf("in %s: %v", in, err)
		}
		if n != nil {
			n.Close()
		}
	}
	noParts(t, dir)
}
