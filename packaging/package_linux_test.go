package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	described1 = "v1.2.3-4-gabc1234"
	version1   = "1.2.3-4-gabc1234"
	epoch1     = "1700000000"
)

// made has packages that were made once for all tests.
var made struct {
	once sync.Once
	dir  string
	tree tree
	err  error
}

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == newcomerRole {
		os.Exit(runNewcomer(os.Args[2:]))
	}
	code := m.Run()
	if made.dir != "" {
		os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// packages returns the directory of the made packages.
func packages(t *testing.T) string {
	t.Helper()
	t.Chdir("..")
	made.once.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "yett-packages-"); made.err == nil {
			made.tree, made.err = makeOnce(made.dir)
		}
	})
	if made.err != nil {
		t.Fatal(made.err)
	}
	return made.dir
}

// makeOnce does what makePackages does, and keeps what was packed.
func makeOnce(dir string) (tree, error) {
	defer syscall.Umask(syscall.Umask(0o022))
	r, err := newRelease(described1, epoch1)
	if err != nil {
		return nil, err
	}
	t, err := r.build(host())
	if err != nil {
		return nil, err
	}
	names, err := r.pack(dir, host(), t)
	if err != nil {
		return nil, err
	}
	if err := r.formulaFor(dir, names); err != nil {
		return nil, err
	}
	return t, writeSums(dir, names)
}

func makePackages(dir string, umask int) error {
	defer syscall.Umask(syscall.Umask(umask))
	r, err := newRelease(described1, epoch1)
	if err != nil {
		return err
	}
	return r.packages(dir, []string{host().os + "/" + host().arch})
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", pattern, found, err)
	}
	return found[0]
}

// TestPackagesAreTheSameEachTime: neither the umask nor the time of the build
// nor an older package is in the bytes.
func TestPackagesAreTheSameEachTime(t *testing.T) {
	first := packages(t)
	second := t.TempDir()
	for _, old := range []string{"yett_0.1_linux_amd64.tar.gz", "yett_0.1_amd64.deb"} {
		if err := os.WriteFile(filepath.Join(second, old), []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := makePackages(second, 0o077); err != nil {
		t.Fatal(err)
	}
	a, b := output(t, "sh", "-c", "cd "+first+" && sha256sum *"), output(t, "sh", "-c", "cd "+second+" && sha256sum *")
	if a != b || strings.Count(a, "\n") != 4 {
		t.Errorf("two builds differ:\n%s\n%s", a, b)
	}
	output(t, "sh", "-c", "cd "+second+" && sha256sum --strict -c SHA256SUMS")
	for _, p := range []string{one(t, second+"/*.deb"), one(t, second+"/*.tar.gz")} {
		content, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)/2] ^= 1
		if err := os.WriteFile(p, content, 0o644); err != nil {
			t.Fatal(err)
		}
		if exec.Command("sh", "-c", "cd "+second+" && sha256sum --strict -c SHA256SUMS").Run() == nil {
			t.Errorf("a changed %s passes for the made one", filepath.Base(p))
		}
	}
}

// TestF2_DebianPackageKeepsRunBits installs the package by dpkg in a root of
// its own, looks at everything in it, runs it, and removes it.
func TestF2_DebianPackageKeepsRunBits(t *testing.T) {
	deb := one(t, packages(t)+"/*.deb")
	root := t.TempDir()
	dpkg(t, root, "--install", deb)
	inspect(t, root+"/usr")
	for _, f := range []string{"share/man/man1/yett.1.gz", "share/man/man1/yett-approve.1.gz", "share/man/man1/yett-mcp.1.gz",
		"share/bash-completion/completions/yett", "share/zsh/vendor-completions/_yett", "share/fish/vendor_completions.d/yett.fish",
		"share/doc/yett/copyright", "share/doc/yett/README.md", "share/doc/yett/changelog.gz", "share/doc/yett/docs/protocol.md"} {
		if st, err := os.Stat(root + "/usr/" + f); err != nil || st.Size() == 0 {
			t.Errorf("%s is missing: %v", f, err)
		}
	}
	for line := range strings.Lines(output(t, "dpkg-deb", "-c", deb)) {
		if f := strings.Fields(line); f[1] != "root/root" || strings.ContainsAny(f[0], "sStTl") {
			t.Errorf("owner, mode or kind: %s", line)
		}
	}
	control := t.TempDir()
	output(t, "dpkg-deb", "-e", deb, control)
	if left, _ := filepath.Glob(control + "/*"); len(left) != 2 {
		t.Errorf("besides control and md5sums there is %v: nothing may run at installation", left)
	}
	output(t, "sh", "-c", "cd "+root+" && md5sum --strict -c "+control+"/md5sums")
	if v := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, "Version")); v != "1.2.3+4.gabc1234" {
		t.Errorf("version %s", v)
	}
	wantUnits(t, root, "/usr")
	jobOfInstalled(t, root+"/usr/bin")
	dpkg(t, root, "--purge", "yett")
	if left, _ := filepath.Glob(root + "/usr/*/*yett*"); len(left) != 0 {
		t.Errorf("removing leaves %v", left)
	}
}

// dpkg runs it on a root of its own; an ordinary account becomes root of a user
// namespace for that.
func dpkg(t *testing.T, root string, args ...string) {
	t.Helper()
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	status := filepath.Join(root, "var/lib/dpkg/status")
	if _, err := os.Stat(status); err != nil {
		if err := os.WriteFile(status, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args = append([]string{"dpkg", "--root=" + root, "--log=/dev/null", "--force-bad-path"}, args...)
	if os.Getuid() != 0 {
		args = append([]string{"unshare", "--map-root-user"}, args...)
	}
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") // dpkg wants to see what it could need
	output(t, args[0], args[1:]...)
}

// TestF2_ArchiveKeepsRunBits unpacks the archive as a person does.
func TestF2_ArchiveKeepsRunBits(t *testing.T) {
	archive := one(t, packages(t)+"/*.tar.gz")
	root := t.TempDir()
	output(t, "tar", "-C", root, "-xzf", archive)
	top := one(t, root+"/*")
	if filepath.Base(top) != strings.TrimSuffix(filepath.Base(archive), ".tar.gz") {
		t.Errorf("the archive unpacks into %s", filepath.Base(top))
	}
	inspect(t, top)
	for line := range strings.Lines(output(t, "tar", "-tvzf", archive)) {
		if f := strings.Fields(line); f[1] != "root/root" || f[0][0] != 'd' && f[0][0] != '-' || strings.ContainsAny(f[0], "sStT") {
			t.Errorf("owner, mode or kind: %s", line)
		}
	}
	for _, f := range []string{"LICENSE", "README.md", "share/man/man1/yett.1", "share/zsh/site-functions/_yett"} {
		if st, err := os.Stat(top + "/" + f); err != nil || st.Size() == 0 {
			t.Errorf("%s is missing: %v", f, err)
		}
	}
	wantLicenses(t, top)
	jobOfInstalled(t, top+"/bin")
}

// inspect looks at the modes and times of all that was installed.
func inspect(t *testing.T, dir string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o644)
		switch {
		case d.IsDir():
			want = os.ModeDir | 0o755
		case filepath.Dir(path) == filepath.Join(dir, "bin"):
			want = 0o755
		}
		if seen++; st.Mode() != want {
			t.Errorf("%s has the mode %v, not %v", path, st.Mode(), want)
		}
		if uid := st.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Getuid() {
			t.Errorf("%s belongs to %d", path, uid)
		}
		if !d.IsDir() && fmt.Sprint(st.ModTime().Unix()) != epoch1 {
			t.Errorf("%s is of %v", path, st.ModTime())
		}
		return nil
	})
	if err != nil || seen < 60 {
		t.Fatalf("%d files: %v", seen, err)
	}
}

// wantUnits: they start the yett that was installed, listen where clients look,
// and do not say that somebody else wrote them.
func wantUnits(t *testing.T, root, prefix string) {
	t.Helper()
	service, err := os.ReadFile(root + prefix + "/lib/systemd/user/yett.service")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := os.ReadFile(root + prefix + "/lib/systemd/user/yett.socket")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{string(service): "\nExecStart=\"" + prefix + "/bin/yett\" serve\n", string(socket): "\nListenStream=%t/yett/broker.sock\n"} {
		if !strings.Contains(text, want) || strings.Contains(text, "service install") {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if st, err := os.Stat(root + prefix + "/bin/yett"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("what the unit starts: %v", err)
	}
}

// TestMakeInstall installs below a prefix in a root of its own, twice: what
// runs is replaced, not written into.
func TestMakeInstall(t *testing.T) {
	packages(t)
	root := t.TempDir()
	r, err := newRelease(described1, epoch1)
	if err != nil {
		t.Fatal(err)
	}
	dir := root + "/opt/yett"
	tree := maps.Clone(made.tree)
	err = tree.addUnits("/opt/yett")
	for range 2 {
		if err == nil {
			err = r.lay(tree, dir)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"bin", "share", "lib"} {
		if left, _ := filepath.Glob(filepath.Join(dir, sub, ".yett-*")); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	}
	wantUnits(t, root, "/opt/yett")
	if out := output(t, dir+"/bin/yett", "--version"); out != "yett "+version1+"\n" {
		t.Errorf("the version is %q", out)
	}
}

// wantLicenses: of everything that is linked in.
func wantLicenses(t *testing.T, top string) {
	t.Helper()
	modules := map[string]bool{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(top + "/bin/" + p)
		if err != nil || len(info.Deps) < 3 {
			t.Fatalf("%s: %v", p, err)
		}
		modules["go@"+info.GoVersion] = true
		for _, m := range info.Deps {
			modules[m.Path+"@"+m.Version] = true
		}
	}
	for m := range modules {
		if files, _ := filepath.Glob(filepath.Join(top, licenses, m, "*")); len(files) == 0 {
			t.Errorf("no licence of %s", m)
		}
	}
}

func TestModuleWithoutLicenseIsAnError(t *testing.T) {
	if err := (tree{}).addLicensesOf("example.com/m@v1", t.TempDir()); err == nil {
		t.Error("what has no licence is passed on")
	}
}

// jobOfInstalled runs the installed programs: the version, a broker on a home
// of its own, and yett-mcp, which finds the broker because yett lies beside it.
// A copy of yett-mcp elsewhere finds none that it may trust.
func jobOfInstalled(t *testing.T, bin string) {
	t.Helper()
	if out := output(t, bin+"/yett", "--version"); out != "yett "+version1+"\n" {
		t.Errorf("the version is %q", out)
	}
	home := filepath.Join(t.TempDir(), "h")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.WriteString("a passphrase of the package\n")
	w.Close()
	initialize := exec.Command(bin+"/yett", "init", "--home", home, "--passphrase-fd", "3")
	initialize.ExtraFiles = []*os.File{r}
	if out, err := initialize.CombinedOutput(); err != nil {
		t.Fatalf("yett init: %v\n%s", err, out)
	}
	serve := exec.Command(bin+"/yett", "serve", "--home", home)
	logs, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer serve.Wait()
	defer serve.Process.Kill()
	waitFor(t, logs, "serving, locked")
	var version struct {
		Broker string `json:"broker_version"`
	}
	if err := json.Unmarshal([]byte(output(t, bin+"/yett", "version", "--json", "--home", home)), &version); err != nil || version.Broker != version1 {
		t.Errorf("the broker is of version %q: %v", version.Broker, err)
	}
	if answer := listAccess(t, bin+"/yett-mcp", home); !strings.Contains(answer, "Yett is locked") {
		t.Errorf("yett-mcp did not find the broker: %s", answer)
	}
	elsewhere := filepath.Join(t.TempDir(), "yett-mcp")
	output(t, "cp", bin+"/yett-mcp", elsewhere)
	if answer := listAccess(t, elsewhere, home); strings.Contains(answer, "Yett is locked") {
		t.Errorf("a copy of yett-mcp elsewhere is taken for the installed one: %s", answer)
	}
}

func waitFor(t *testing.T, from io.Reader, mark string) {
	t.Helper()
	found := make(chan string, 1)
	go func() {
		var seen bytes.Buffer
		buf := make([]byte, 4096)
		for !strings.Contains(seen.String(), mark) {
			n, err := from.Read(buf)
			seen.Write(buf[:n])
			if err != nil {
				break
			}
		}
		found <- seen.String()
		io.Copy(io.Discard, from)
	}()
	select {
	case text := <-found:
		if !strings.Contains(text, mark) {
			t.Fatalf("the broker did not start: %s", text)
		}
	case <-time.After(time.Minute):
		t.Fatal("the broker did not start in time")
	}
}

// listAccess is an agent that calls one tool; it returns the last line.
func listAccess(t *testing.T, shim, home string) string {
	t.Helper()
	c := exec.Command(shim, "--home", home)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer in.Close()
	time.AfterFunc(time.Minute, func() { c.Process.Kill() })
	dec := json.NewDecoder(out)
	var last json.RawMessage
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_access","arguments":{}}}`,
	} {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"id"`) {
			if err := dec.Decode(&last); err != nil {
				t.Fatalf("yett-mcp does not answer: %v", err)
			}
		}
	}
	return string(last)
}

// TestDebianVersionsAreInOrder as dpkg sees them.
func TestDebianVersionsAreInOrder(t *testing.T) {
	ordered := []string{"44826c6", "0.1.0-rc.1", "0.1.0", "0.1.0-dirty", "0.1.0-3-gabc1234", "0.1.0-12-gabc1234", "0.1.0-12-gabc1234-dirty", "0.2.0-rc.1-2-gabc1234", "0.2.0"}
	var versions []string
	for _, v := range ordered {
		versions = append(versions, debianVersion(v))
	}
	for i := 1; i < len(versions); i++ {
		if err := exec.Command("dpkg", "--compare-versions", versions[i-1], "lt", versions[i]).Run(); err != nil {
			t.Errorf("%s is not before %s: %v", versions[i-1], versions[i], err)
		}
	}
	if !slices.Contains(versions, "0.1.0+12.gabc1234") {
		t.Errorf("versions: %q", versions)
	}
}

func TestReleaseNeedsVersionAndTime(t *testing.T) {
	for _, c := range [][2]string{{"", epoch1}, {"v1.0.0", ""}, {"v1.0.0", "yesterday"}} {
		if _, err := newRelease(c[0], c[1]); err == nil {
			t.Errorf("made with %q", c)
		}
	}
}
