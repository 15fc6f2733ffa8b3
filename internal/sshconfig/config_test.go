package sshconfig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write lays files below a home and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

const example = `# a comment
Include conf.d/*.conf
ServerAliveInterval = 20

Host web1 web2 !web3
	HostName %h.example.net
	User "deploy user"
	IdentityFile ~/.ssh/id_web # which one
	IdentityFile ~/.ssh/id_second
Host web*
  Port=2222
  USER nobody
Host bastion
    HostName 192.0.2.7
    ProxyJump none
Match host 192.0.2.*
    User hop
Match originalhost inner,other
    ProxyJump alice@bastion:2022,second
Match exec "test -e /tmp/never"
    ForwardAgent yes
Host *
    Port 22
    SendEnv LANG LC_TIME
    SendEnv EDITOR
Match all
    LogLevel QUIET
`

func TestLookupAsSSHDoes(t *testing.T) {
	home := write(t, map[string]string{
		".ssh/config":          example,
		".ssh/conf.d/10.conf":  "Host inner\nUser early\nInclude " + "conf.d/nested\nHostName inner.example\n",
		".ssh/conf.d/20.conf":  "Host deep\nIdentityFile '/a key'\n",
		".ssh/conf.d/nested":   "Port 99\nHost inner deep\nCompression yes\n",
		".ssh/conf.d/unrelted": "Host unrelated\n",
	})
	c, err := Read(filepath.Join(home, ".ssh", "config"), home)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"inner", "deep", "web1", "web2", "bastion"}; !slices.Equal(c.Names(), want) {
		t.Errorf("names %v, want %v", c.Names(), want)
	}
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0].Text, "Match exec test -e /tmp/never") || c.Notes[0].Line != 20 {
		t.Errorf("notes %v", c.Notes)
	}
	// What the real client makes of it, but for the block that runs a program.
	oracle := filepath.Join(home, "oracle")
	text := strings.ReplaceAll(strings.Replace(example, "exec \"test -e /tmp/never\"", "exec false", 1), "conf.d/", home+"/.ssh/conf.d/")
	nested := filepath.Join(home, ".ssh/conf.d/10.conf")
	if err := os.WriteFile(nested, []byte(strings.ReplaceAll("Host inner\nUser early\nInclude conf.d/nested\nHostName inner.example\n", "conf.d/", home+"/.ssh/conf.d/")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(oracle, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web1", "web2", "web3", "web10", "bastion", "inner", "other", "deep", "nobody.example", "WEB1"} {
		o := c.Lookup(name)
		if o.Value("forwardagent") != "" {
			t.Errorf("%s: what stands behind a condition that cannot be judged applies", name)
		}
		for key, values := range realSSH(t, oracle, name) {
			var got []string
			switch key {
			case "hostname":
				got = []string{strings.ReplaceAll(o.Value(key), "%h", name)}
				if o.Value(key) == "" {
					got[0] = strings.ToLower(name)
				}
			case "sendenv", "identityfile":
				got = o.Values(key)
			case "port", "user", "proxyjump", "serveraliveinterval":
				got = []string{o.Value(key)}
			default:
				continue
			}
			if key == "identityfile" && len(got) == 0 || key == "user" && got[0] == "" {
				continue // what ssh has by default
			}
			if !slices.Equal(got, values) {
				t.Errorf("%s of %s: %q, ssh says %q", key, name, got, values)
			}
		}
	}
}

// realSSH asks OpenSSH's client what applies to a host.
func realSSH(t testing.TB, config, name string) map[string][]string {
	t.Helper()
	out, err := exec.Command("ssh", "-F", config, "-G", name).Output()
	if err != nil {
		t.Fatalf("ssh -G %s: %v (Debian: apt-get install openssh-client)", name, err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		all[key] = append(all[key], value)
	}
	return all
}

func TestWhatCannotBeRead(t *testing.T) {
	loop := write(t, map[string]string{".ssh/config": "Include config\n"})
	long := write(t, map[string]string{".ssh/config": strings.Repeat("Port 1\n", maxDirectives+1)})
	big := write(t, map[string]string{".ssh/config": strings.Repeat("#", maxFile+1)})
	quote := write(t, map[string]string{".ssh/config": "\nUser \"x\n"})
	empty := write(t, nil)
	for home, want := range map[string]string{
		loop: "deep", long: "lines altogether", big: "longer than", quote: "config:2: a quote does not end", empty: "no such file",
	} {
		if _, err := Read(filepath.Join(home, ".ssh", "config"), home); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want …%s…", err, want)
		}
	}
	dir := t.TempDir()
	if _, err := Read(dir, dir); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("a directory: %v", err)
	}
}

func keyLine(t testing.TB, kind string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", path).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	text, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestKnownHosts(t *testing.T) {
	a, b, ca, gone := keyLine(t, "ed25519"), keyLine(t, "ecdsa"), keyLine(t, "ed25519"), keyLine(t, "ed25519")
	list := filepath.Join(write(t, map[string]string{"known": fmt.Sprintf(`# a comment
web1.example,192.0.2.1 %[1]s
[web1.example]:2222 %[2]s
hashed.example %[1]s
[hashed.example]:2222 %[2]s
*.wild.example,!not.wild.example %[1]s
@cert-authority *.ca.example %[3]s
@revoked *.ca.example %[4]s
db.ca.example %[4]s
web1.example %[1]s
`, a, b, ca, gone), "bad": "nonsense\n@strange web1.example " + a + "\n"}), "known")
	for _, name := range []string{"hashed.example", "[hashed.example]:2222"} {
		out, err := exec.Command("ssh-keygen", "-F", name, "-f", list).Output()
		if err != nil || len(out) == 0 {
			t.Fatalf("ssh-keygen -F: %v", err)
		}
	}
	if out, err := exec.Command("ssh-keygen", "-q", "-H", "-f", list).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen -H: %v: %s", err, out)
	}
	k, err := ReadKnown(list, filepath.Join(filepath.Dir(list), "bad"), list+".not-there")
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"web1.example:22":     "1 0 0",
		"WEB1.example:22":     "1 0 0",
		"192.0.2.1:22":        "1 0 0",
		"web1.example:2222":   "1 0 0",
		"web1.example:2223":   "0 0 0",
		"hashed.example:22":   "1 0 0",
		"hashed.example:2222": "1 0 0",
		"hashed.example:23":   "0 0 0",
		"a.wild.example:22":   "1 0 0",
		"not.wild.example:22": "0 0 0",
		"db.ca.example:22":    "0 1 1",
		"db.ca.example:2022":  "0 1 1",
		"other.example:22":    "0 0 0",
		"no address":          "0 0 0",
	} {
		f := k.LookupAddress(address)
		if got := fmt.Sprint(len(f.Keys), len(f.Authorities), len(f.Revoked)); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if f := k.LookupAddress("web1.example:2222"); len(f.Keys) != 1 || f.Keys[0].Type() != "ecdsa-sha2-nistp256" {
		t.Errorf("S03: the port's own key: %v", f.Keys)
	}
	if len(k.Notes) != 2 {
		t.Errorf("notes: %v", k.Notes)
	}
}

func FuzzSplitLine(f *testing.F) {
	for line := range strings.Lines(example) {
		f.Add(line)
	}
	f.Add(`Host "a b" 'c\'d' e\ f # g`)
	f.Fuzz(func(t *testing.T, line string) {
		name, args, err := splitLine(line)
		if err == nil && strings.ContainsAny(name, " \t=") {
			t.Errorf("name %q", name)
		}
		if err == nil && len(args) > len(line) {
			t.Errorf("%d arguments of %d bytes", len(args), len(line))
		}
	})
}
