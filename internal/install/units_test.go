package install

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// place is an account that exists on paper only.
func place(system string) Place { return Place{Home: "/home/ada", UID: 1000, System: system} }

func units(t *testing.T, system, yett, socket string) []Unit {
	t.Helper()
	all, err := place(system).Units(yett, socket)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUnitsGolden(t *testing.T) {
	all := units(t, "linux", "/opt/yett/bin/yett", "/run/user/1000/yett/broker.sock")
	all = append(all, units(t, "macos", "/opt/yett & co/bin/yett", "/Users/ada/.local/state/yett/run/broker.sock")...)
	for _, u := range all {
		golden(t, filepath.Base(u.Path), "# "+u.Path+"\n"+u.Text)
	}
	if len(all) != 3 {
		t.Errorf("%d units", len(all))
	}
}

// TestUnitsQuoting: whatever the path of yett has in it, systemd and launchd
// start that file and nothing else.
func TestUnitsQuoting(t *testing.T) {
	odd := `/home/a b/50%/$HOME/"q"/back\slash/<x>/yett`
	service := units(t, "linux", odd, "/home/50%/broker.sock")
	if want := `ExecStart="/home/a b/50%%/$$HOME/\"q\"/back\\slash/<x>/yett" serve`; !strings.Contains(service[1].Text, want+"\n") {
		t.Errorf("%q is not in\n%s", want, service[1].Text)
	}
	if want := "ListenStream=/home/50%%/broker.sock\n"; !strings.Contains(service[0].Text, want) {
		t.Errorf("%q is not in\n%s", want, service[0].Text)
	}
	plist := parsePlist(t, units(t, "macos", odd, "/s")[0].Text)
	if words := plist["ProgramArguments"].([]any); len(words) != 2 || words[0] != odd || words[1] != "serve" {
		t.Errorf("launchd would start %q", words)
	}
	for _, path := range []string{"/a\nExecStartPre=/bin/evil", "/a\x00b", "/a\rb"} {
		for _, system := range []string{"linux", "macos"} {
			if _, err := place(system).Units(path, "/s"); err == nil {
				t.Errorf("%s: the path %q was accepted", system, path)
			}
			if _, err := place(system).Units("/y", path); err == nil {
				t.Errorf("%s: the socket %q was accepted", system, path)
			}
		}
	}
}

// TestPlist: launchd's file has the form of its document type, and modes in
// decimal.
func TestPlist(t *testing.T) {
	plist := parsePlist(t, units(t, "macos", "/y", "/Users/ada/broker.sock")[0].Text)
	socket, _ := plist["Sockets"].(map[string]any)["yett-broker"].(map[string]any)
	if socket["SockPathMode"] != 0o600 || socket["SockPathName"] != "/Users/ada/broker.sock" || plist["Umask"] != 0o077 {
		t.Errorf("socket %v, umask %v", socket, plist["Umask"])
	}
	if keep, _ := plist["KeepAlive"].(map[string]any); plist["RunAtLoad"] != true || keep["SuccessfulExit"] != false || plist["Label"] != Label {
		t.Errorf("%v", plist)
	}
}

// parsePlist reads the values of a property list and refuses what is none.
func parsePlist(t *testing.T, text string) map[string]any {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	if e := nextElement(t, d); e == nil || e.Name.Local != "plist" || e.Attr[0].Value != "1.0" {
		t.Fatalf("it begins with %v", e)
	}
	all, ok := plistValue(t, d, nextElement(t, d)).(map[string]any)
	if e := nextElement(t, d); !ok || e != nil {
		t.Fatalf("the value is no dict, or %v follows", e)
	}
	if _, err := d.Token(); err == nil { // a line end may follow
		if _, err = d.Token(); err != io.EOF {
			t.Fatalf("something follows: %v", err)
		}
	}
	return all
}

// nextElement is the next start of an element, or nil at the end of the one it
// is in.
func nextElement(t *testing.T, d *xml.Decoder) *xml.StartElement {
	t.Helper()
	for {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			return &token
		case xml.EndElement:
			return nil
		case xml.CharData:
			if strings.TrimSpace(string(token)) != "" {
				t.Fatalf("text between elements: %q", token)
			}
		}
	}
}

func plistValue(t *testing.T, d *xml.Decoder, e *xml.StartElement) any {
	t.Helper()
	switch e.Name.Local {
	case "dict":
		all := map[string]any{}
		for key := nextElement(t, d); key != nil; key = nextElement(t, d) {
			name := content(t, d, key)
			if key.Name.Local != "key" || all[name] != nil {
				t.Fatalf("%s where a new key must be: %q", key.Name.Local, name)
			}
			all[name] = plistValue(t, d, nextElement(t, d))
		}
		return all
	case "array":
		var all []any
		for v := nextElement(t, d); v != nil; v = nextElement(t, d) {
			all = append(all, plistValue(t, d, v))
		}
		return all
	case "string":
		return content(t, d, e)
	case "integer":
		n, err := strconv.Atoi(content(t, d, e))
		if err != nil {
			t.Fatal(err)
		}
		return n
	case "true", "false":
		content(t, d, e)
		return e.Name.Local == "true"
	}
	t.Fatalf("there is no element %s in a property list", e.Name.Local)
	return nil
}

func content(t *testing.T, d *xml.Decoder, e *xml.StartElement) (s string) {
	t.Helper()
	if err := d.DecodeElement(&s, e); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestUnitNeedsNoNamespace: options that systemd can give an account's service
// in a namespace of users only would keep the broker from establishing who
// asks. The list is of systemd.exec(5): 'implies PrivateUsers' for user
// services, or capabilities that no account's manager may drop.
func TestUnitNeedsNoNamespace(t *testing.T) {
	service := units(t, "linux", "/y", "/run/user/1000/yett/broker.sock")[1].Text
	option := regexp.MustCompile(`(?m)^(Private\w+|Protect\w+|Root\w+|Bind\w*Paths|Read\w+Paths|InaccessiblePaths|\w*ExecPaths|TemporaryFileSystem|MountAPIVFS|ProcSubset|DynamicUser|User|CapabilityBoundingSet|AmbientCapabilities|\w+Directory)=`)
	if found := option.FindAllString(service, -1); len(found) > 0 {
		t.Errorf("the unit has %v", found)
	}
	for _, want := range []string{"NoNewPrivileges=yes", "SystemCallFilter=@system-service", "MemoryDenyWriteExecute=yes", "LimitCORE=0", "UMask=0077", "Type=notify"} {
		if !strings.Contains(service, want+"\n") {
			t.Errorf("the unit has no %s", want)
		}
	}
}

// TestUnitsVerify asks systemd itself, where it is there.
func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd is not installed")
	}
	dir := t.TempDir()
	var paths []string
	for _, u := range units(t, "linux", "/bin/true", "/run/user/1000/yett/broker.sock") {
		path := filepath.Join(dir, filepath.Base(u.Path))
		if err := os.WriteFile(path, []byte(u.Text), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	c := exec.Command(analyze, append([]string{"verify", "--user", "--man=no"}, paths...)...)
	c.Env = []string{"XDG_RUNTIME_DIR=" + dir, "HOME=" + dir, "PATH=/usr/bin:/bin"}
	if out, err := c.CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
		t.Errorf("systemd says: %v\n%s", err, out)
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=65", paths[1]).CombinedOutput()
	if err != nil {
		t.Errorf("less hardened than it was:\n%s", out)
	}
}

// TestUninstallTakesWhatItMade: units come and go; one that the person changed
// is left and named, and one that was there before is not replaced.
func TestUninstallTakesWhatItMade(t *testing.T) {
	p := home(t)
	all, err := p.Units("/opt/yett/bin/yett", p.path("broker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	installUnits := func() *UnitPlan {
		t.Helper()
		plan, err := p.InstallUnits(all)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ApplyUnits(plan); err != nil {
			t.Fatal(err)
		}
		return plan
	}
	uninstallUnits := func() *UnitPlan {
		t.Helper()
		plan, err := p.UninstallUnits()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ApplyUnits(plan); err != nil {
			t.Fatal(err)
		}
		return plan
	}
	if !installUnits().Changed() || installUnits().Changed() {
		t.Error("the first time changes nothing, or the second does")
	}
	if there, changed, err := p.Installed(); err != nil || len(there) != 2 || len(changed) != 0 {
		t.Errorf("installed: %v %v %v", there, changed, err)
	}
	uninstallUnits()
	for _, u := range all {
		if _, err := os.Lstat(u.Path); err == nil {
			t.Errorf("%s is left", u.Path)
		}
	}
	installUnits()
	service := all[1].Path
	if err := os.WriteFile(service, []byte(all[1].Text+"# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var foreign *ForeignError
	if _, err := p.InstallUnits(all); !errors.As(err, &foreign) || foreign.Path != service {
		t.Errorf("a changed unit: %v", err)
	}
	if plan := uninstallUnits(); !slices.Equal(plan.Kept, []string{service}) || !strings.HasSuffix(read(t, service), "# mine\n") {
		t.Errorf("kept %v", plan.Kept)
	}
	if _, err := os.Lstat(all[0].Path); err == nil {
		t.Error("the socket's unit is left")
	}
	// An update of yett, at another place, replaces its own units.
	if err := os.Remove(service); err != nil {
		t.Fatal(err)
	}
	installUnits()
	if all, err = p.Units("/opt/yett-2/bin/yett", p.path("broker.sock")); err != nil {
		t.Fatal(err)
	}
	if !installUnits().Changed() || !strings.Contains(read(t, service), "/opt/yett-2/bin/yett") {
		t.Errorf("the unit is\n%s", read(t, service))
	}
}

// TestPurge removes what Yett made and names the rest.
func TestPurge(t *testing.T) {
	p := home(t)
	for _, name := range []string{"vault.yett", "vault.yett.prev", ".vault.yett.tmp-ABC", "ledger.db", "ledger.db-wal", "ledger.journal.torn-1", "broker.lock"} {
		lay(t, p, ".local/share/yett/"+name, "x")
	}
	lay(t, p, ".local/state/yett/run/broker.lock", "x")
	mine := lay(t, p, ".local/share/yett/notes.txt", "mine")
	left, err := p.Purge(p.path(".local/share/yett"))
	if err != nil || !slices.Equal(left, []string{mine}) {
		t.Errorf("left %v, %v", left, err)
	}
	if got := names(t, p.path(".local")); strings.Count(got, "\n") != 5 { // and .local, share, yett, state
		t.Errorf("there is\n%s", got)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if left, err := p.Purge(p.path(".local/share/yett")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := os.Lstat(p.path(".local/share/yett")); err == nil {
		t.Error("the directory is left")
	}
}

// TestAttackPurgeElsewhere: a link in the place of the data directory is not
// followed.
func TestAttackPurgeElsewhere(t *testing.T) {
	p, elsewhere := home(t), home(t)
	theirs := lay(t, elsewhere, "vault.yett", "x")
	if err := errors.Join(os.MkdirAll(p.path(".local/share"), 0o700), os.Symlink(elsewhere.Home, p.path(".local/share/yett"))); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Purge(p.path(".local/share/yett")); err == nil {
		t.Error("a link was followed")
	}
	if read(t, theirs) != "x" {
		t.Error("the file elsewhere is gone")
	}
}
