package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/yett-broker/yett/internal/wire"
)

// output is standard output. It keeps the first failure of a write, so that a
// command whose output was cut short does not end as if it had been read.
type output struct {
	*os.File
	failed error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if err != nil && o.failed == nil {
		o.failed = err
	}
	return n, err
}

// WriteString is there because os.File has one, which would not pass through Write.
func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// lost is the failure to print the output, if there was one.
func (o *output) lost() error {
	if o.failed == nil {
		return nil
	}
	return wire.Errorf(wire.CodeInternal, "The output could not be written: %v.", o.failed).
		Then("What the command did is done. Make room, or send the output elsewhere, before it is run again.")
}

// result prints what a command did: a value for --json, a line for a person.
func (a *app) result(value any, format string, args ...any) error {
	if a.json {
		return printJSON(a.stdout, value)
	}
	_, err := fmt.Fprintf(a.stdout, format+"\n", args...)
	return err
}

// aligned aligns columns that are parted by tabs, once it is flushed.
func aligned(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 4, 2, ' ', 0) }

// printJSON prints one line of JSON in ASCII: text of an agent can stand in a
// value, and must not steer the terminal that it is printed on.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(asciiJSON(b.Bytes()))
	return err
}

// asciiJSON writes every character beyond ASCII as \uXXXX. In valid JSON such
// characters stand in strings only.
func asciiJSON(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch {
		case r < utf8.RuneSelf && r != 0x7f:
			out = append(out, raw[0])
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		raw = raw[size:]
	}
	return out
}

// sentence makes a cause a sentence of its own.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// note prints a line for the person that belongs to no output.
func (a *app) note(format string, args ...any) {
	if !a.json {
		fmt.Fprintln(a.stderr, a.here(fmt.Sprintf(format, args...)))
	}
}
