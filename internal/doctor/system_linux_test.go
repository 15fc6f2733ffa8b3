package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/yetttest"
)

// A role is what this test binary does in namespaces of its own, where it may
// take away what the machine has.
const roleVariable = "DOCTOR_TEST_ROLE"

var roles = map[string]func() int{
	"full":       func() int { return onSmallDisk("size=18m", 4<<20) },
	"low":        func() int { return onSmallDisk("size=100m", 0) },
	"no-inodes":  func() int { return onSmallDisk("size=400m,nr_inodes=10", 0) },
	"namespaces": func() int { return limited("max_user_namespaces") },
	"watches":    func() int { return limited("max_inotify_watches") },
	"mute":       listenMutely,
	"instances":  func() int { return limited("max_inotify_instances") },
}

// listenMutely takes the broker's place, hides its program as one does, and
// says nothing until its standard input ends.
func listenMutely() int {
	l, err := net.Listen("unix", os.Getenv("DOCTOR_TEST_SOCKET"))
	if err == nil {
		err = errors.Join(os.Chmod(l.Addr().String(), 0o600), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	fmt.Println("listening")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// onSmallDisk runs yett doctor with its home on a small file system.
func onSmallDisk(options string, ballast int) int {
	home := os.Getenv("DOCTOR_TEST_HOME")
	err := unix.Mount("tmpfs", home, "tmpfs", 0, options+",mode=0700")
	if err == nil && ballast > 0 {
		err = os.WriteFile(filepath.Join(home, "ballast"), make([]byte, ballast), 0o600)
	}
	return doctorRun(err)
}

// limited runs yett doctor where one limit of the user namespace is zero. A
// process that is in the namespace already may still make the limited thing in
// the outer one only.
func limited(name string) int {
	return doctorRun(os.WriteFile("/proc/sys/user/"+name, []byte("0"), 0))
}

func doctorRun(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	c := exec.Command(yetttest.Bin("yett"), "doctor", "--json", "--home", os.Getenv("DOCTOR_TEST_HOME"))
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Run() // its exit code is judged by its output
	return 0
}

// inNamespaces plays a role as the same account in a user namespace of its own.
func inNamespaces(t *testing.T, role string, id int) found {
	t.Helper()
	home := filepath.Join(t.TempDir(), "h")
	must(t, os.Mkdir(home, 0o700))
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), roleVariable+"="+role, "DOCTOR_TEST_HOME="+home)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE, unix.CAP_SYS_ADMIN}}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", role, err)
	}
	var f found
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatalf("%s: %v: %s", role, err, out)
	}
	return f
}

func TestDoctorDisk(t *testing.T) {
	inNamespaces(t, "full", 0).says(t, "disk", false, "Make room: without it")
	inNamespaces(t, "no-inodes", 0).says(t, "disk", false, "inodes free")
	inNamespaces(t, "low", 0).says(t, "disk", true, "Make room before")
}

// TestDoctorMuteBroker: whoever hides its program can take the broker's place
// in its own account; that it does not answer as one is told.
func TestDoctorMuteBroker(t *testing.T) {
	b := yetttest.New(t)
	socket := b.Location().Socket
	must(t, os.Mkdir(filepath.Dir(socket), 0o700))
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), roleVariable+"=mute", "DOCTOR_TEST_SOCKET="+socket)
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	must(t, err)
	stdout, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	_, err = stdout.Read(make([]byte, 16))
	must(t, err)
	examine(t, b).says(t, "broker", false, "did not say how it is")
	must(t, errors.Join(stdin.Close(), c.Wait()))
}

func TestDoctorWatches(t *testing.T) {
	inNamespaces(t, "watches", 1000).says(t, "inotify", false, "no inotify watch is left")
	inNamespaces(t, "instances", 1000).says(t, "inotify", false, "no inotify instance is left")
}

// TestDoctorUserNamespaces: what is said is what a process of the account can do.
func TestDoctorUserNamespaces(t *testing.T) {
	if os.Getuid() == 0 {
		t.Fatal("the tests run as an ordinary account")
	}
	b := yetttest.New(t)
	c := exec.Command("/bin/true")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	held, _ := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if c.Run() == nil && strings.TrimSpace(string(held)) != "1" {
		examine(t, b).says(t, "user_namespaces", true, "what a card says of a program is weaker")
		inNamespaces(t, "namespaces", 1000).says(t, "user_namespaces", true, "this account may make none")
	} else {
		examine(t, b).says(t, "user_namespaces", true, "this account may make")
	}
}

// TestDoctorBrokerInASandbox: what was taken from the broker is told.
func TestDoctorBrokerInASandbox(t *testing.T) {
	b := yetttest.New(t)
	b.Under = []string{"setpriv", "--no-new-privs", "prlimit", "--memlock=4096:4096"}
	b.Serve()
	f := examine(t, b)
	f.says(t, "sandbox", true, "no_new_privs")
	f.says(t, "locked_memory", true, "Raise the limit for the broker")
	f.says(t, "memory", true, "the kernel keeps the broker's memory")
}

// ownPrograms gives the test programs of its own that it may replace.
func ownPrograms(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "yd")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"yett", "yett-mcp"} {
		copyProgram(t, yetttest.Bin(name), filepath.Join(dir, name))
	}
	shipped := filepath.Dir(yetttest.Static("yett")) // which run the commands
	must(t, os.Symlink(shipped, filepath.Join(dir, filepath.Base(shipped))))
	t.Setenv("YETTTEST_BIN", dir)
	return dir
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, errors.Join(err, out.Close()))
}

// replaceProgram puts a new file in a program's place, as an update does.
func replaceProgram(t *testing.T, path string) {
	t.Helper()
	copyProgram(t, path, path+".new")
	must(t, os.Rename(path+".new", path))
}

func TestDoctorPrograms(t *testing.T) {
	dir := ownPrograms(t)
	b := yetttest.New(t)
	b.Serve()
	examine(t, b).says(t, "program_on_disk", true, "runs the yett that lies there")
	replaceProgram(t, filepath.Join(dir, "yett"))
	examine(t, b).says(t, "program_on_disk", true, "Restart the broker when it suits you")
	must(t, os.Chmod(filepath.Join(dir, "yett-mcp"), 0o777))
	examine(t, b).says(t, "program_yett_mcp", false, "others can change it")
	must(t, os.Remove(filepath.Join(dir, "yett-mcp")))
	examine(t, b).says(t, "program_yett_mcp", false, "into one directory")
}

func TestDoctorClients(t *testing.T) {
	home := t.TempDir()
	b := yetttest.New(t)
	b.Env = []string{"HOME=" + home}
	examine(t, b).says(t, "client", true, "where your agent keeps its MCP servers")
	config := func(command string) {
		must(t, os.WriteFile(filepath.Join(home, ".claude.json"), []byte(`{"mcpServers":{"yett-mcp":{"command":"`+command+`"}}}`), 0o600))
	}
	config(yetttest.Bin("yett-mcp"))
	examine(t, b).says(t, "client", true, "starts "+yetttest.Bin("yett-mcp"))
	gemini := filepath.Join(home, ".gemini", "settings.json")
	must(t, os.Mkdir(filepath.Dir(gemini), 0o700))
	for settings, sandboxed := range map[string]bool{`"tools":{"sandbox":"docker"},`: true, `"tools":{"sandbox": true},`: true, `"tools":{"sandbox":false},`: false, "": false} {
		must(t, os.WriteFile(gemini, []byte(`{`+settings+`"mcpServers":{"yett":{"command":"`+yetttest.Bin("yett-mcp")+`"}}}`), 0o600))
		told := false
		for _, c := range examine(t, b).Checks {
			told = told || c.Name == "client" && strings.Contains(c.Found, "runs in a sandbox") && c.OK && c.NextStep != ""
		}
		if told != sandboxed {
			t.Errorf("Gemini with %s: a sandbox is told: %v", settings, told)
		}
	}
	must(t, os.Remove(gemini))
	config("/nowhere/yett-mcp")
	examine(t, b).says(t, "client", false, "/nowhere/yett-mcp, which is not there")
	other := filepath.Join(home, "yett-mcp")
	copyProgram(t, yetttest.Bin("yett-mcp"), other)
	config(other)
	examine(t, b).says(t, "client", false, "is not the installed")
	config("yett-mcp")
	examine(t, b).says(t, "client", true, "Write the whole path")
	must(t, os.Mkdir(filepath.Join(home, ".codex"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, ".codex/config.toml"), []byte("[mcp_servers.yett]\ncommand = '/gone/yett-mcp'\n"), 0o600))
	examine(t, b).says(t, "client", false, "Codex")
	must(t, os.Chmod(filepath.Join(home, ".codex/config.toml"), 0))
	examine(t, b).says(t, "client", true, "Look at the file's permissions")
}
