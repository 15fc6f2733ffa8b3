package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestDoctorDumpable: a process that hides nothing, this one, is told.
func TestDoctorDumpable(t *testing.T) {
	if f := dumpFinding(os.Getpid()); f.Level != Bad || f.Cause != Dumpable {
		t.Errorf("%+v", f)
	}
}

func TestDoctorPtraceScope(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scope")
	if f := ptraceFinding(path); f.Cause != PtraceOpen {
		t.Errorf("without Yama: %+v", f)
	}
	for text, cause := range map[string]Cause{"0\n": PtraceOpen, "1\n": "", "2\n": "", "3\n": ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := ptraceFinding(path); f.Cause != cause {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// TestDoctorService: a unit owns the broker, a login does not.
func TestDoctorService(t *testing.T) {
	for text, unit := range map[string]string{
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/yett.service\n":                       "yett.service",
		"12:pids:/x\n1:name=systemd:/system.slice/yett@ada.service\n0::/\n":                               "yett@ada.service",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/v.scope": "",
		"0::/user.slice/user-1000.slice/user@1000.service\n":                                              "",
		"4:cpu:/other.service\n0::/\n":                                                                    "",
		"":                                                                                                "",
	} {
		if got := unitOf(text); got != unit {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestA4_DoctorSeesAListener: a socket that listens and that the looked at
// process could have is told with its port.
func TestA4_DoctorSeesAListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if f := networkFinding(os.Getpid(), ""); f.Cause != HiddenListener || !strings.Contains(f.Found, port) {
		t.Errorf("of the process itself: %+v", f)
	}
	if f := networkFinding(1, ""); strings.Contains(f.Found, port) {
		t.Errorf("of another process: %+v", f)
	}
	if f := networkFinding(os.Getpid(), port); f.Level != Good && strings.Contains(f.Found, port) {
		t.Errorf("of the console: %+v", f)
	}
	open, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	port = strconv.Itoa(open.Addr().(*net.TCPAddr).Port)
	if f := networkFinding(os.Getpid(), port); f.Cause != HiddenListener || !strings.Contains(f.Found, port) {
		t.Errorf("of a console that listens beyond loopback: %+v", f)
	}
}
