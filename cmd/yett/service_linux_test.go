package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ada is the account of these tests: it exists within their namespace only.
const ada = 64918

// managed is a home of an account with a service manager of its own, in a
// namespace of mounts: the account database, /run/user and the control groups
// there are not the machine's.
type managed struct {
	t    *testing.T
	dir  string
	bin  string
	home string
}

// inNamespace runs a script as root in the namespace, with a systemd --user of
// ada's, and returns what it printed.
func (m managed) inNamespace(script string, args ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", managedNamespace, "sh", m.dir, m.home, fmt.Sprint(ada), script, m.bin}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(m.dir, "manager.log"))
		m.t.Fatalf("%v\n%s\nthe manager:\n%s", err, out, log)
	}
	return string(out)
}

// managedNamespace: $1 scratch directory, $2 home, $3 account, $4 what the
// account runs, $5 the programs. /etc is covered as a whole: see newAccount.
const managedNamespace = `set -eu
mkdir -p "$1/etc"
printf 'ada:x:%s:%s::%s:/bin/sh\n' "$3" "$3" "$2" > "$1/etc/passwd"
mount -t overlay -o "lowerdir=$1/etc:/etc" none /etc
mkdir -p /run/systemd /run/user
mount -t tmpfs none /run/systemd; mkdir /run/systemd/system
mount -t tmpfs none /run/user; mkdir -m 700 "/run/user/$3"; chown "$3:$3" "/run/user/$3"
mount -t tmpfs none /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
group="/sys/fs/cgroup/yett-test-$$"; mkdir "$group" "$group/manager"; chown -R "$3:$3" "$group"
account="setpriv --reuid $3 --regid $3 --clear-groups env -i PATH=/usr/sbin:/usr/bin:/bin HOME=$2 XDG_RUNTIME_DIR=/run/user/$3"
(echo 0 > "$group/manager/cgroup.procs"; exec $account timeout 100 /lib/systemd/systemd --user --log-target=console) > "$1/manager.log" 2>&1 &
n=0; until [ -S "/run/user/$3/systemd/private" ]; do n=$((n+1)); [ $n -lt 200 ]; sleep 0.1; done
status=0; $account sh -euc "$4" sh "$5" "$2" < /dev/null || status=$?
$account systemctl --user exit; wait
find "$group" -depth -type d -exec rmdir {} +
exit $status`

// newManaged builds both programs, as the account can run them.
func newManaged(t *testing.T) managed {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a service manager of its own needs root")
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skip("systemd is not installed")
	}
	dir, err := os.MkdirTemp("", "yett-service-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := managed{t: t, dir: dir, bin: filepath.Join(dir, "bin"), home: filepath.Join(dir, "home")}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(m.bin, 0o755), os.Mkdir(m.home, 0o700), os.Chown(m.home, ada, ada)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "build", "-buildvcs=false", "-o", m.bin+"/", "github.com/yett-broker/yett/cmd/yett", "github.com/yett-broker/yett/cmd/yett-mcp")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return m
}

// TestC10_TheServiceManagerOwnsTheBroker: installed, the manager listens and
// starts the broker, hardened, when somebody connects; an agent's shim is
// attributed from outside of the service; whoever woke the broker and reads to
// the end of the output gets there (M12); and all of it goes away again.
func TestC10_TheServiceManagerOwnsTheBroker(t *testing.T) {
	m := newManaged(t)
	out := m.inNamespace(`yett="$1/yett"; home="$2"
say() { printf '\n=%s\n' "$1"; }
ended() { n=0; while systemctl --user show -P MainPID yett.service | grep -qv '^0$'; do n=$((n+1)); [ $n -lt 200 ]; sleep 0.1; done; }
printf 'correct horse battery staple\n' > "$home/phrase"
say novault;   "$yett" service install --yes --json 2>&1 || true; ls -A "$home/.config" 2>&1 || true
say init;      "$yett" init --passphrase-fd 5 --json 5< "$home/phrase"
say byhand;    "$yett" serve > /dev/null 2>&1 & hand=$!
n=0; until "$yett" status > /dev/null 2>&1; do n=$((n+1)); [ $n -lt 200 ]; sleep 0.05; done
say refused;   "$yett" service install --yes --json 2>&1 > /dev/null || true
say owner;     "$yett" service status --json
"$yett" stop > /dev/null; wait $hand
say unasked;   "$yett" service install --json 2>&1 || true; ls -A "$home/.config" 2>&1 || true
say install;   "$yett" service install --yes --json
say waiting;   "$yett" service status --json
say unlock;    "$yett" unlock --passphrase-fd 5 --json 5< "$home/phrase"
say running;   "$yett" service status --json
say again;     "$yett" service install --yes --json
say kernel;    pid=$(systemctl --user show -P MainPID yett.service); grep -E '^(Seccomp|NoNewPrivs|CoreDumping):' /proc/$pid/status
say shim;      { printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}' '{"jsonrpc":"2.0","method":"notifications/initialized"}' '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_access","arguments":{}}}'; sleep 3; } | "$1/yett-mcp"
say notnow;    "$yett" uninstall --yes --json 2>&1 || true
say stop;      "$yett" stop --json; ended
say none;      ("$yett" stop; "$yett" stop --json) 2>&1 || [ $? = 4 ]
say stopped;   "$yett" service status --json
say woken;     timeout 5 sh -c 'said=$("$0" status --json 2>&1); echo "$said"' "$yett"
"$yett" stop > /dev/null; ended
say deaf;      systemctl --user stop yett.socket yett.service; "$yett" service status
say hears;     "$yett" service install --yes --json; "$yett" service status
say uninstall; "$yett" service uninstall --yes --json
say gone;      "$yett" service status --json
say left;      find "$home" -not -path '*/.local/share/*'; ls /run/user/*/yett
of() { sed "s,^ExecStart=.*,ExecStart=\"$2\" serve,; 1,2d" "$home/units" > "$home/.local/share/systemd/user/$1"; }
mkdir -p "$home/.local/share/systemd/user"
"$yett" service install --print | sed '/^# .*yett.service$/,$d' | sed 1d > "$home/units"; of yett.socket ""
"$yett" service install --print | sed '1,/^# .*yett.service$/d' > "$home/units"; of yett.service "$yett"; rm "$home/units"
systemctl --user daemon-reload
say offered;   "$yett" service status; "$yett" service status --json
say taken;     "$yett" service install --yes --json; "$yett" service install --yes
say used;      "$yett" service status --json; find "$home/.config" -name 'yett.*' -type f
say up;        "$yett" up --passphrase-fd 5 --json 5< "$home/phrase"
"$yett" stop > /dev/null; ended
say leave;     "$yett" service uninstall --yes --json; ls "$home/.local/share/systemd/user"
say unused;    "$yett" service status --json; "$yett" service uninstall --yes
`)
	said := sections(out)
	for name, want := range map[string][]string{
		"novault":   {"There is no vault yet", "No such file"},
		"refused":   {`"bad_request"`, "started by hand"},
		"owner":     {`"installed":false`, `"running":true`, `"owner":"started by hand"`},
		"unasked":   {"Nothing was written", "No such file"},
		"install":   {`"changed":true`, "yett.socket", "yett.service"},
		"waiting":   {`"installed":true`, `"enabled":true`, `"listening":true`, `"running":false`, `"owner":"service manager"`},
		"running":   {`"running":true`, `"owner":"service manager"`},
		"again":     {`"changed":false`},
		"kernel":    {"NoNewPrivs:\t1", "Seccomp:\t2"},
		"shim":      {`"id":2`, "There are no capabilities"},
		"notnow":    {"The broker is running"},
		"none":      {"No broker is running. The service manager starts one", `"stopped":false`},
		"stopped":   {`"running":false`, `"listening":true`},
		"woken":     {`"state":"locked"`},
		"deaf":      {"installed, not running", "yett service install listens again"},
		"hears":     {"starts when somebody connects"},
		"uninstall": {`"changed":true`},
		"offered":   {"not installed", "of a package", ".local/share/systemd/user/yett.socket", `"installed":false`},
		"taken":     {`"changed":true`, `"units":[]`, "Nothing to do"},
		"used":      {`"installed":true`, `"enabled":true`, `"listening":true`, ".local/share/systemd/user/yett.socket"},
		"up":        {`"broker":"running"`, `"unlocked":true`},
		"leave":     {`"changed":true`, `yett.socket"]`, "yett.service\nyett.socket"},
		"unused":    {`"installed":false`, `"enabled":false`, `"listening":false`, "nothing to take away"},
		"gone":      {`"installed":false`, `"enabled":false`, `"listening":false`, `"owner":"nobody"`},
	} {
		for _, w := range want {
			if !strings.Contains(said[name], w) {
				t.Errorf("%s: %q is not in\n%s", name, w, said[name])
			}
		}
	}
	if strings.Contains(said["used"], ".config/systemd/user/yett.socket\n") {
		t.Errorf("units were written beside those of the package:\n%s", said["used"])
	}
	for _, no := range []string{"yett.service", "yett.socket", "broker.sock", "installed.json"} {
		if strings.Contains(said["left"], no) {
			t.Errorf("left:\n%s", said["left"])
		}
	}
	var s struct{ PID int }
	if err := json.Unmarshal([]byte(said["running"]), &s); err != nil || s.PID == 0 {
		t.Errorf("no process: %v %s", err, said["running"])
	}
}

// sections splits what a script printed by its headings.
func sections(out string) map[string]string {
	all := map[string]string{}
	for _, part := range strings.Split("\n"+out, "\n=")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		all[name] = text
	}
	return all
}
