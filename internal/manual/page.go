package manual

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writePage writes the manual page of a command in the man macros, from what
// its --help says.
func writePage(w io.Writer, c *cobra.Command, version string, date time.Time) {
	fmt.Fprintf(w, ".TH %s 1 %s %s \"Yett Manual\"\n", macroWord(strings.ToUpper(pageName(c))), macroWord(date.Format("2006-01-02")), macroWord("yett "+version))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(pageName(c)), roff(c.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n%s\n", roff(c.CommandPath()), roff(arguments(c)))
	io.WriteString(w, ".SH DESCRIPTION\n")
	if c.Long == "" {
		writeText(w, c.Short+".")
	} else {
		writeText(w, c.Long)
	}
	writeCommands(w, c)
	if c.Example != "" {
		io.WriteString(w, ".SH EXAMPLES\n.nf\n")
		for line := range strings.Lines(c.Example + "\n") {
			fmt.Fprintln(w, roff(strings.TrimSpace(line)))
		}
		io.WriteString(w, ".fi\n")
	}
	writeFlags(w, "OPTIONS", c.NonInheritedFlags())
	writeFlags(w, "OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if !c.HasParent() {
		io.WriteString(w, manualOfAll)
	}
	writeSeeAlso(w, c)
}

// arguments is what stands behind the name of a command.
func arguments(c *cobra.Command) string {
	_, args, _ := strings.Cut(c.Use, " ")
	if len(subcommands(c)) > 0 {
		args = "COMMAND"
	}
	return strings.TrimSpace(args + " [options]")
}

func subcommands(c *cobra.Command) (all []*cobra.Command) {
	for _, sub := range documented(c)[1:] {
		if sub.Parent() == c {
			all = append(all, sub)
		}
	}
	return all
}

func writeCommands(w io.Writer, c *cobra.Command) {
	subs := subcommands(c)
	if len(subs) > 0 {
		io.WriteString(w, ".SH COMMANDS\n")
	}
	for _, sub := range subs {
		fmt.Fprintf(w, ".TP\n.BR %s (1)\n%s.\n", roff(pageName(sub)), roff(sub.Short))
	}
}

func writeFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	begun := false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		if !begun {
			fmt.Fprintf(w, ".SH %s\n", title)
			begun = true
		}
		value, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(w, ".TP\n.B %s", roff("--"+f.Name))
		if value != "" {
			fmt.Fprintf(w, " %s", roff(value))
		}
		fmt.Fprintf(w, "\n%s", roff(usage))
		if d := f.DefValue; f.Value.Type() != "bool" && strings.Trim(d, "0sm") != "" && d != "-1" {
			fmt.Fprintf(w, " (default %s)", roff(d))
		} else if f.Value.Type() == "bool" && d == "true" {
			fmt.Fprintf(w, " (default; %s turns it off)", roff("--"+f.Name+"=false"))
		}
		io.WriteString(w, ".\n")
	})
}

func writeSeeAlso(w io.Writer, c *cobra.Command) {
	var pages []string
	switch {
	case !c.HasParent():
		pages = []string{"yett-mcp"}
	default:
		pages = []string{pageName(c.Parent())}
		for _, sibling := range subcommands(c.Parent()) {
			if sibling != c && c.Parent().HasParent() {
				pages = append(pages, pageName(sibling))
			}
		}
	}
	io.WriteString(w, ".SH SEE ALSO\n")
	for i, p := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		fmt.Fprintf(w, ".BR %s (1)%s\n", roff(p), end)
	}
}

// writeText writes paragraphs; lines that begin with a blank stay as they are.
func writeText(w io.Writer, text string) {
	literal := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if indented := strings.HasPrefix(line, " "); indented != literal && line != "" {
			literal = indented
			io.WriteString(w, map[bool]string{true: ".PP\n.nf\n", false: ".fi\n.PP\n"}[literal])
		} else if line == "" && !literal {
			io.WriteString(w, ".PP\n")
			continue
		}
		fmt.Fprintln(w, roff(line))
	}
	if literal {
		io.WriteString(w, ".fi\n")
	}
}

// roff writes text so that no character of it is a command of the formatter,
// and none beyond ASCII: which of those a formatter reads depends on its locale.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	if strings.IndexFunc(s, beyondASCII) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if beyondASCII(r) {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func beyondASCII(r rune) bool { return r > unicode.MaxASCII }

// macroWord is one argument of a macro.
func macroWord(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }

// manualOfAll is what holds for every command. A test compares it with the
// program.
const manualOfAll = `.SH EXIT STATUS
.TP
.B 0
It is done.
.TP
.B 1
It failed.
.TP
.B 2
The command line is wrong.
.TP
.B 3
It was refused.
.TP
.B 4
The broker is not there.
.TP
.B 5
Yett is locked.
.TP
.B 6
The command waited for a person in vain.
.PP
With
.B \-\-json
a failure is printed on standard error as {"error": {"code", "message", "next_step"}}.
.SH FILES
.TP
.I ~/.local/share/yett
The vault, the ledger and what belongs to them. The home is that of the account database, not of the environment.
.TP
.I /run/user/UID/yett/broker.sock
The socket, else
.IR ~/.local/state/yett/run/broker.sock .
No variable of the environment changes either.
`
