package screen

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/yett-broker/yett/internal/approval"
)

// usualWidth is the width of what is not a terminal.
const usualWidth = 80

// Width is the width of a terminal in columns, or the usual one.
func Width(out io.Writer) int {
	if f, ok := out.(interface{ Fd() uintptr }); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 20 {
			return width
		}
	}
	return usualWidth
}

// goesOn stands before what goes on from the line above.
const goesOn = "          ┆ "

// Wrap breaks long lines itself and marks what goes on: were it left to the
// terminal, text of an agent could be padded so that a part of it begins a line
// and looks like one of ours. It breaks at a space where one is near.
func Wrap(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, newline := strings.CutSuffix(line, "\n")
		for first := true; ; first = false {
			room := width
			if !first {
				b.WriteString("\n" + goesOn)
				room -= utf8.RuneCountInString(goesOn)
			}
			n := fitting(line, room)
			b.WriteString(strings.TrimRight(line[:n], " "))
			if line = line[n:]; line == "" {
				break
			}
		}
		if newline {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// fitting is how many bytes of a line fit into room columns.
func fitting(line string, room int) int {
	column, space := 0, 0
	for i, r := range line {
		column += columns(r)
		if column > room {
			if space > i/2 {
				return space
			}
			return max(i, utf8.RuneLen(r)) // a line of one character at least
		}
		if r == ' ' {
			space = i + 1
		}
	}
	return len(line)
}

// columns is the width of a character. Most of what lies beyond the first
// alphabets is wide; a line that is too short is no harm.
func columns(r rune) int {
	if r < 0x1100 || strings.ContainsRune("─→←“”…┆", r) {
		return 1
	}
	return 2
}

// quoted sets off what an agent says; its own closing marks do not end ours.
func quoted(s string) string { return "“" + strings.ReplaceAll(s, "”", `\u{201D}`) + "”" }

// claimShown is how much of one claim a screen has room for. What is decided
// upon is never shortened.
const claimShown = 200

// shortened cuts a text of a card, which was escaped, between two characters
// and marks what is left out.
func shortened(s string) string {
	if utf8.RuneCountInString(s) <= claimShown {
		return s
	}
	cut := 0
	for range claimShown {
		_, size := utf8.DecodeRuneInString(s[cut:])
		cut += size
	}
	if mark := strings.LastIndexByte(s[:cut], '\\'); mark > 0 && cut-mark < len(`\u{10FFFF}`) && !strings.Contains(s[mark:cut], "}") {
		cut = mark // not inside of an escape
	}
	return s[:cut] + approval.LeftOut(utf8.RuneCountInString(s[cut:]))
}

// List writes a name and values, of commands each on a line of its own.
func List(w io.Writer, label string, values []string) {
	if label == "commands" { // they may hold commas and spaces themselves
		for _, v := range values {
			fmt.Fprintf(w, "    %-9s %s\n", "command", v)
		}
		return
	}
	if len(values) > 0 {
		fmt.Fprintf(w, "    %-9s %s\n", label, strings.Join(values, ", "))
	}
}

// HowMany is a number with its noun, of those that end in s or ies for many.
func HowMany(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
