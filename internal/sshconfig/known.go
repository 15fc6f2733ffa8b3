package sshconfig

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Known is what lists of known hosts say.
type Known struct {
	entries []known
	Notes   []Note
}

type known struct {
	marker   string // cert-authority, revoked, or nothing
	patterns []string
	key      ssh.PublicKey
}

// Found are the keys that are known of one host.
type Found struct {
	Keys        []ssh.PublicKey
	Authorities []ssh.PublicKey
	Revoked     []ssh.PublicKey
}

// ReadKnown reads lists of known hosts; one that is not there has no entries. A
// line that cannot be read is a note.
func ReadKnown(paths ...string) (*Known, error) {
	k := &Known{}
	for _, path := range paths {
		text, err := readFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		line := 0
		for text := range strings.Lines(text) {
			line++
			if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
				continue
			}
			if why := k.add(text); why != "" {
				k.Notes = append(k.Notes, Note{Place{path, line}, why})
			}
		}
	}
	return k, nil
}

func (k *Known) add(line string) (why string) {
	marker, hosts, key, _, rest, err := ssh.ParseKnownHosts([]byte(line))
	switch {
	case err != nil || len(bytes.TrimSpace(rest)) > 0:
		return "the line cannot be read"
	case marker != "" && marker != "cert-authority" && marker != "revoked":
		return "the marker @" + marker + " is not known"
	}
	if len(hosts) != 1 || !strings.HasPrefix(hosts[0], "|") { // a hash keeps its case
		hosts = lower(hosts)
	}
	k.entries = append(k.entries, known{marker, hosts, key})
	return ""
}

// Lookup returns what is known of a host by its name or address and port. As
// with ssh, an authority that is listed without a port is one for every port.
func (k *Known) Lookup(host string, port int) Found {
	host = strings.ToLower(host)
	name := host
	if port != 22 {
		name = "[" + host + "]:" + strconv.Itoa(port)
	}
	var f Found
	for _, e := range k.entries {
		listed := e.names(name)
		switch {
		case e.marker == "cert-authority" && (listed || e.names(host)):
			f.Authorities = append(f.Authorities, e.key)
		case e.marker == "revoked" && (listed || e.names(host)):
			f.Revoked = append(f.Revoked, e.key)
		case e.marker == "" && listed:
			f.Keys = append(f.Keys, e.key)
		}
	}
	f.Keys = without(once(f.Keys), f.Revoked)
	f.Authorities = without(once(f.Authorities), f.Revoked)
	f.Revoked = once(f.Revoked)
	return f
}

// LookupAddress is Lookup of 'host:port'.
func (k *Known) LookupAddress(address string) Found {
	host, portText, err := net.SplitHostPort(address)
	port, _ := strconv.Atoi(portText)
	if err != nil || port == 0 {
		return Found{}
	}
	return k.Lookup(host, port)
}

func (e known) names(name string) bool {
	if len(e.patterns) == 1 && strings.HasPrefix(e.patterns[0], "|") {
		return hashed(e.patterns[0], name)
	}
	return matchList(e.patterns, name)
}

// hashed compares with '|1|salt|HMAC-SHA-1', as HashKnownHosts writes names.
func hashed(entry, name string) bool {
	parts := strings.Split(entry, "|")
	if len(parts) != 4 || parts[1] != "1" {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	want, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	return hmac.Equal(mac.Sum(nil), want)
}

func once(keys []ssh.PublicKey) []ssh.PublicKey {
	var out []ssh.PublicKey
	for _, k := range keys {
		out = append(out, without([]ssh.PublicKey{k}, out)...)
	}
	return out
}

func without(keys, others []ssh.PublicKey) []ssh.PublicKey {
	return slices.DeleteFunc(keys, func(k ssh.PublicKey) bool {
		return slices.ContainsFunc(others, func(o ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), o.Marshal()) })
	})
}

// Line is a public key as ssh's files write it.
func Line(k ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k))) }

// Lines are public keys as ssh's files write them.
func Lines(keys []ssh.PublicKey) []string {
	var lines []string
	for _, k := range keys {
		lines = append(lines, Line(k))
	}
	return lines
}
