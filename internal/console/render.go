package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

//go:embed web/*.html
var pages embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"clock":  func(t time.Time) string { return t.Local().Format("15:04") },
	"when":   func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") },
	"day":    func(t time.Time) string { return t.Local().Format("2 Jan 15:04") },
	"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"short":  func(s string) string { return s[:min(len(s), 12)] },
	"join":   strings.Join,
	"plain":  approval.Printable,
	"plural": plural,
	"orNone": func(s string) string {
		if s == "" {
			return "none"
		}
		return s
	},
}).ParseFS(pages, "web/*.html"))

// programOf names a program that may be hidden.
func programOf(path string) string {
	if path == "" {
		return "a program that hides itself"
	}
	return path
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// render writes a template. It is complete or not there at all.
func (c *Console) render(w http.ResponseWriter, name string, data any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		c.Log.Error("rendering a view of the console", "view", name, "error", err)
		refuse(w, wire.NewError(wire.CodeInternal))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(b.Bytes())
}

// reading refuses a view whose page may no longer read.
func reading(w http.ResponseWriter, o *opened) bool {
	if !o.page.Reading() {
		refuse(w, wire.NewError(wire.CodeProofRequired))
		return false
	}
	return true
}

// unlockedWords says what an unlocking did.
func unlockedWords(u wire.Unlocked) []string {
	var told []string
	if n := len(u.Resumed); n > 0 {
		told = append(told, plural(n, "session")+" resumed.")
	}
	if n := len(u.Ended); n > 0 {
		told = append(told, plural(n, "paused session")+" could not go on and ended.")
	}
	return append(told, u.Notices...)
}
