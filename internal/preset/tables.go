package preset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Names of what the tables of one addition declare.
func ReadCapability(name string) string  { return "http:" + name + ".read" }
func WriteCapability(name string) string { return "http:" + name + ".write" }
func LookCapability(name string) string  { return "ssh:" + name + ".status" }
func RunCapability(name string) string   { return "ssh:" + name + ".run" }

// Tables are the tables of an access file for a service: its credential under a
// name, for one origin, and what may be asked for.
func (p Preset) Tables(name, origin string, private bool) []byte {
	var w writer
	w.table("credential", name)
	w.pair("kind", p.Kind)
	w.pair("origin", origin)
	if p.Kind == "header" {
		w.pair("header", p.Header)
	}
	if p.Prefix != "" {
		w.pair("prefix", p.Prefix)
	}
	if private {
		w.raw("private", "true")
	}
	w.rules(ReadCapability(p.stem(name)), name, p.Read, false)
	w.rules(WriteCapability(p.stem(name)), name, p.Write, true)
	return w.Bytes()
}

// stem is what the names of the capabilities of a credential are made from.
func (p Preset) stem(name string) string {
	if p.As == "" {
		return name
	}
	return name + "." + p.As
}

// Capabilities names what the tables of a service or a host may declare.
func (p Preset) Capabilities(name string) []string {
	stem := p.stem(name)
	return []string{ReadCapability(stem), WriteCapability(stem), LookCapability(stem), RunCapability(stem)}
}

// Server is a host that SSH actions go to.
type Server struct {
	Name, Address, User string
	HostKeys            []string
	Private             bool
	Look                []string // commands that are granted for a session
	Run                 []string // commands that are asked for each time
}

// Tables are the tables of an access file for a host.
func (s Server) Tables() []byte {
	var w writer
	w.table("credential", s.Name)
	w.pair("kind", "ssh-key")
	w.table("host", s.Name)
	w.pair("address", s.Address)
	w.pair("user", s.User)
	w.pair("key", s.Name)
	w.list("host_keys", s.HostKeys)
	if s.Private {
		w.raw("private", "true")
	}
	for _, c := range []struct {
		name     string
		commands []string
		each     bool
	}{{LookCapability(s.Name), s.Look, false}, {RunCapability(s.Name), s.Run, true}} {
		if len(c.commands) == 0 {
			continue
		}
		w.table("capability", c.name)
		w.pair("host", s.Name)
		w.list("commands", c.commands)
		w.confirm(c.each)
	}
	return w.Bytes()
}

// writer writes TOML.
type writer struct{ bytes.Buffer }

func (w *writer) table(section, name string) {
	if w.Len() > 0 {
		w.WriteByte('\n')
	}
	fmt.Fprintf(w, "[%s.%s]\n", section, quote(name))
}

func (w *writer) raw(key, value string)  { fmt.Fprintf(w, "%s = %s\n", key, value) }
func (w *writer) pair(key, value string) { w.raw(key, quote(value)) }

func (w *writer) list(key string, values []string) {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = quote(v)
	}
	w.raw(key, "["+strings.Join(quoted, ", ")+"]")
}

func (w *writer) confirm(each bool) {
	if each {
		w.pair("confirm", "each")
	}
}

func (w *writer) rules(name, credential string, r *Rules, each bool) {
	if r == nil {
		return
	}
	w.table("capability", name)
	w.pair("credential", credential)
	w.list("methods", r.Methods)
	w.list("paths", r.Paths)
	if r.Query != nil {
		w.list("query", r.Query)
	}
	if r.Budget != "" {
		w.pair("budget", r.Budget)
	}
	w.confirm(each)
}

// quote writes a string as TOML reads it: the escapes of JSON are among those
// of TOML.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string always encodes
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
