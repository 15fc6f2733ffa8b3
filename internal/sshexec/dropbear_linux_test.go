package sshexec_test

import (
	"bytes"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
)

// dropbear is an SSH server that nobody of OpenSSH wrote. It finds authorized
// keys in the account's home only, so it runs in a mount namespace where another
// directory lies over that.
type dropbear struct {
	address, user string
	hostKeys      []string
}

// startDropbear serves each connection by a dropbear of its own (-i), which has
// host keys of these kinds, and lets in the keys of lines.
func startDropbear(t testing.TB, kinds []string, lines ...string) *dropbear {
	t.Helper()
	program, err := exec.LookPath("dropbear")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/dropbear"); err != nil {
			t.Fatal("no dropbear (Debian: apt-get install dropbear-bin)")
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := &dropbear{user: me.Username}
	home := filepath.Join(dir, "home")
	for _, made := range []string{home, filepath.Join(home, ".ssh")} {
		if err := os.Mkdir(made, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, ".ssh", "authorized_keys"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := []string{program, "-i"} // its log goes to syslog
	for _, kind := range kinds {
		key := filepath.Join(dir, kind)
		out, err := exec.Command("dropbearkey", "-t", kind, "-f", key).Output()
		if err != nil {
			t.Fatalf("dropbearkey: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			if key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err == nil {
				d.hostKeys = append(d.hostKeys, publicLine(key))
			}
		}
		serve = append(serve, "-r", key)
	}
	namespace := []string{"unshare", "--mount"}
	if os.Geteuid() != 0 {
		namespace = append(namespace, "--map-current-user", "--keep-caps")
	}
	args := append(namespace, "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, home, me.HomeDir)
	args = append(args, serve...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.address = l.Addr().String()
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.hand(t, conn.(*net.TCPConn), args)
		}
	}()
	return d
}

func (d *dropbear) hand(t testing.TB, conn *net.TCPConn, args []string) {
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	cmd := exec.Command(args[0], args[1:]...)
	var log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = file, file, &log
	conn.Close()
	cmd.Run()
	if log.Len() > 0 {
		t.Logf("dropbear: %s", log.String())
	}
}

func (d *dropbear) target(hostKeys ...string) sshexec.Target {
	return sshexec.Target{Address: d.address, User: d.user, HostKeys: hostKeys, Private: true}
}

func TestDropbearAsHost(t *testing.T) {
	var lines []string
	keys := map[string]ssh.Signer{}
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		_, private, line := keygen(t, "-t", kind, "-N", "", "-C", "")
		lines, keys[kind] = append(lines, line), parseKey(t, private)
	}
	d := startDropbear(t, []string{"ed25519", "ecdsa", "rsa"}, lines...)
	if len(d.hostKeys) != 3 {
		t.Fatalf("host keys: %v", d.hostKeys)
	}
	for kind, key := range keys {
		t.Run("with a key of kind "+kind, func(t *testing.T) {
			res, err := newExecutor().Do(t.Context(), d.target(d.hostKeys...), key, action.SSH{Command: "cat; exit 9", Stdin: []byte("in")})
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, res, 9)
			if string(res.Stdout) != "in" {
				t.Errorf("stdout %q", res.Stdout)
			}
		})
	}
	for i, line := range d.hostKeys {
		t.Run("S01 known by "+strings.Fields(line)[0], func(t *testing.T) {
			res, err := newExecutor().Do(t.Context(), d.target(line), keys["ed25519"], action.SSH{Command: "exit 0"})
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, res, 0)
			if !strings.HasSuffix(res.HostKey, fingerprint(t, d.hostKeys[i])) {
				t.Errorf("host key %s", res.HostKey)
			}
		})
	}
	t.Run("another key", func(t *testing.T) {
		_, err := newExecutor().Do(t.Context(), d.target(publicLine(newTestKey(t).PublicKey())), keys["ed25519"], action.SSH{Command: "true"})
		wantError(t, err, sshexec.CodeHostKey, false)
		_, err = newExecutor().Do(t.Context(), d.target(d.hostKeys...), newTestKey(t), action.SSH{Command: "true"})
		wantError(t, err, sshexec.CodeAuth, false)
	})
	t.Run("as jump host", func(t *testing.T) {
		behind := startDropbear(t, []string{"ecdsa"}, lines...)
		tg := behind.target(behind.hostKeys...)
		tg.Via = []sshexec.Hop{{Name: "bastion", Address: d.address, User: d.user, HostKeys: d.hostKeys, Private: true, Signer: keys["rsa"]}}
		res, err := newExecutor().Do(t.Context(), tg, keys["ecdsa"], action.SSH{Command: "exit 5"})
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, res, 5)
	})
}

// Keys that dropbearkey made and dropbearconvert wrote in OpenSSH's form.
func TestS13_KeysThatDropbearConverted(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"ed25519", "ecdsa"} {
		own, converted := filepath.Join(dir, kind), filepath.Join(dir, kind+".openssh")
		for _, args := range [][]string{{"dropbearkey", "-t", kind, "-f", own}, {"dropbearconvert", "dropbear", "openssh", own, converted}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", args, err, out)
			}
		}
		if block, _ := pem.Decode(read(t, converted)); block == nil {
			t.Fatalf("%s: no PEM", kind)
		}
		parseKey(t, read(t, converted))
		wantReason(t, read(t, own), sshexec.KeyDamaged)
	}
}
