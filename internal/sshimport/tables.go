package sshimport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/preset"
	"github.com/yett-broker/yett/internal/sshconfig"
)

// Tables as they stand in an access file.
type (
	credentialTable struct {
		Kind        string `toml:"kind"`
		Certificate string `toml:"certificate,omitempty"`
	}
	hostTable struct {
		Address   string   `toml:"address"`
		User      string   `toml:"user"`
		Key       string   `toml:"key"`
		HostKeys  []string `toml:"host_keys,multiline,omitempty"`
		HostCA    []string `toml:"host_ca,multiline,omitempty"`
		HostNames []string `toml:"host_names,omitempty"`
		Revoked   []string `toml:"revoked_keys,multiline,omitempty"`
		Jump      []string `toml:"jump,omitempty"`
		Keepalive string   `toml:"keepalive,omitempty"`
		Env       []string `toml:"env,omitempty"`
		Private   bool     `toml:"private,omitempty"`
	}
	commandTable struct {
		Host     string   `toml:"host"`
		Commands []string `toml:"commands"`
		Confirm  string   `toml:"confirm,omitempty"`
	}
)

// Tables are what is added to the applied access file: new credentials and hosts,
// and for each host that was asked for the commands that only look, and those
// that are asked for each time.
func (p *Plan) Tables(look, run []string) ([]byte, error) {
	var b strings.Builder
	var failed error
	write := func(section, name string, table any) {
		text, err := toml.Marshal(table)
		failed = errors.Join(failed, err)
		fmt.Fprintf(&b, "[%s.%s]\n%s\n", section, strconv.Quote(name), text)
	}
	for _, k := range p.Keys {
		if !k.there {
			write("credential", k.Name, credentialTable{Kind: access.KindSSHKey, Certificate: k.certificate})
		}
	}
	for _, h := range p.Hosts {
		write("host", h.Name, h.table())
		if !h.target {
			continue
		}
		if _, taken := p.applied.Capability(preset.LookCapability(h.Name)); !taken && len(look) > 0 {
			write("capability", preset.LookCapability(h.Name), commandTable{h.Name, look, ""})
		}
		if _, taken := p.applied.Capability(preset.RunCapability(h.Name)); !taken && len(run) > 0 {
			write("capability", preset.RunCapability(h.Name), commandTable{h.Name, run, access.ConfirmEach})
		}
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n"), failed
}

func (h *Host) table() hostTable {
	return hostTable{Address: h.Address, User: h.User, Key: h.Key, HostKeys: sshconfig.Lines(h.found.Keys), HostCA: sshconfig.Lines(h.found.Authorities),
		HostNames: h.hostNames, Revoked: sshconfig.Lines(h.found.Revoked), Jump: h.Jump, Keepalive: h.keepalive, Env: h.env, Private: h.private}
}

// check finds what the access file would not take of a host, so that one host
// does not keep the others out.
func (p *Plan) check(h *Host) error {
	alone := *h
	alone.Jump = nil // those are planned, and were checked
	one := Plan{applied: p.applied, Hosts: []*Host{&alone}}
	for _, k := range p.Keys {
		if k.Name == h.Key {
			bare := *k
			bare.there = false
			one.Keys = []*Key{&bare}
		}
	}
	text, err := one.Tables(nil, nil)
	if err != nil {
		return err
	}
	_, err = access.Parse(text)
	var problems access.Problems
	if errors.As(err, &problems) {
		return fmt.Errorf("%s: %s", problems[0].Key, problems[0].Message)
	}
	return err
}

// key plans the credential of a key file, once for all hosts that use it.
func (p *Plan) key(path string, o sshconfig.Options) string {
	for _, k := range p.Keys {
		if k.File == path {
			return k.Name
		}
	}
	base := "ssh-" + strings.Trim(notInNames.ReplaceAllString(strings.ToLower(filepath.Base(path)), "-"), "-")
	k := &Key{Name: base, File: path, certificate: p.certificate(path, o)}
	for n := 2; ; n++ {
		c, applied := p.applied.Credential(k.Name)
		if applied && c.Kind == access.KindSSHKey {
			k.there = true
			break
		}
		if !applied && !slices.ContainsFunc(p.Keys, func(o *Key) bool { return o.Name == k.Name }) {
			break
		}
		k.Name = base + "-" + strconv.Itoa(n)
	}
	p.Keys = append(p.Keys, k)
	return k.Name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

var certificateLine = regexp.MustCompile(`^[a-z0-9@.-]+-cert-v01@openssh\.com [A-Za-z0-9+/=]+`)

// certificate is that of a key: of CertificateFile, or beside the key.
func (p *Plan) certificate(key string, o sshconfig.Options) string {
	paths := []string{key + "-cert.pub"}
	if f := o.Value("certificatefile"); f != "" {
		if rest, ok := strings.CutPrefix(f, "~/"); ok {
			f = filepath.Join(p.home, rest)
		}
		paths = []string{f}
	}
	for _, path := range paths {
		text, err := readRegular(path)
		if err != nil {
			continue
		}
		if line := certificateLine.Find(text); line != nil {
			return string(line)
		}
	}
	return ""
}

// maxFile is the longest certificate that is read, in bytes.
const maxFile = 64 << 10

// readRegular reads a file. A pipe that nobody writes to must not hang.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, os.ErrInvalid
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
