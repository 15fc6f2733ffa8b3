package action

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxCommand    = 64 << 10
	maxTimeoutMS  = 600_000
	maxArgvLength = 1024
	maxStdin      = 1 << 20
	maxVariables  = 32
	maxVariable   = 4 << 10
)

// SSHInput is an SSH action as the agent wrote it: exactly one of Command and
// Argv, and at most one of Stdin and StdinBase64.
type SSHInput struct {
	Command     *string
	Argv        []string
	Stdin       *string
	StdinBase64 *string
	TimeoutMS   *int64
	PTY         bool
	Env         map[string]string
}

// NewSSH makes the canonical form of an SSH action. The server always hands
// one string to the account's login shell, so there is one string here:
// either the agent's own, opaque and shown verbatim, or argv quoted by Quote.
// The quoting holds for POSIX shells and fish; for any other login shell only
// an opaque command means what it says.
func NewSSH(in SSHInput) (*SSH, *Refusal) {
	if (in.Command != nil) == (in.Argv != nil) {
		return nil, badRequest("give exactly one of command and argv")
	}
	var command string
	if in.Command != nil {
		command = *in.Command
	} else {
		if len(in.Argv) == 0 || in.Argv[0] == "" {
			return nil, badRequest("argv names no program")
		}
		if len(in.Argv) > maxArgvLength {
			return nil, badRequest("argv has more than %d arguments", maxArgvLength)
		}
		command = Quote(in.Argv)
	}
	if r := checkCommand(command); r != nil {
		return nil, r
	}
	out := &SSH{Command: command, PTY: in.PTY}
	var r *Refusal
	if out.Stdin, r = input(in.Stdin, in.StdinBase64); r != nil {
		return nil, r
	}
	if out.Timeout, r = timeout(in.TimeoutMS); r != nil {
		return nil, r
	}
	if out.Env, r = variables(in.Env); r != nil {
		return nil, r
	}
	return out, nil
}

// variables brings an environment into its one order.
func variables(env map[string]string) ([]Variable, *Refusal) {
	if len(env) > maxVariables {
		return nil, badRequest("env has more than %d variables", maxVariables)
	}
	var out []Variable
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		switch {
		case !IsVariableName(name):
			return nil, badRequest("env has a name that is no variable's")
		case len(value) > maxVariable:
			return nil, badRequest("env: %s is longer than %d bytes", name, maxVariable)
		case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
			return nil, badRequest("env: %s has a control character, or is not UTF-8", name)
		}
		out = append(out, Variable{name, value})
	}
	return out, nil
}

// IsVariableName reports whether a shell could name a variable so.
func IsVariableName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '_' && !isAlphanumeric(c) || i == 0 && '0' <= c && c <= '9' {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// input is what a command gets to read; nil is nothing.
func input(text, encoded *string) ([]byte, *Refusal) {
	var b []byte
	switch {
	case text != nil && encoded != nil:
		return nil, badRequest("give at most one of stdin and stdin_base64")
	case text != nil:
		b = []byte(*text)
	case encoded != nil:
		var err error
		if b, err = base64.StdEncoding.Strict().DecodeString(*encoded); err != nil {
			return nil, badRequest("stdin_base64 is not base64")
		}
	}
	switch {
	case len(b) > maxStdin:
		return nil, badRequest("standard input is longer than %d bytes", maxStdin)
	case len(b) == 0:
		return nil, nil
	}
	return b, nil
}

// checkCommand refuses what a card cannot show as what it is: control
// characters other than tab and newline, and bytes that are not text.
func checkCommand(command string) *Refusal {
	switch {
	case strings.TrimSpace(command) == "":
		return badRequest("command is empty")
	case len(command) > maxCommand:
		return badRequest("command is longer than %d bytes", maxCommand)
	case !utf8.ValidString(command):
		return badRequest("command is not UTF-8")
	}
	for _, c := range command {
		if unicode.IsControl(c) && c != '\t' && c != '\n' {
			return badRequest("command has a control character")
		}
	}
	return nil
}

// Quote writes argv as one command for a POSIX shell. Single quotes and
// backslashes stand outside of the quotes, escaped, because fish reads them
// inside.
func Quote(argv []string) string {
	var b strings.Builder
	for i, arg := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if IsPlainArgument(arg) && (i > 0 || isPlainProgram(arg)) {
			b.WriteString(arg)
		} else {
			quoteInto(&b, arg)
		}
	}
	return b.String()
}

func quoteInto(b *strings.Builder, arg string) {
	if arg == "" {
		b.WriteString("''")
		return
	}
	open := false
	for i := range len(arg) {
		special := arg[i] == '\'' || arg[i] == '\\'
		if special == open { // leave the quotes before a special byte, enter them before any other
			b.WriteByte('\'')
			open = !open
		}
		if special {
			b.WriteByte('\\')
		}
		b.WriteByte(arg[i])
	}
	if open {
		b.WriteByte('\'')
	}
}

// IsPlainArgument reports whether no shell gives a word a meaning of its own:
// it is not empty and wholly of the safe alphabet [A-Za-z0-9._/@:=,+-], and
// does not begin with '=', which zsh expands.
func IsPlainArgument(arg string) bool {
	for i := range len(arg) {
		if !isAlphanumeric(arg[i]) && strings.IndexByte("._/@:=,+-", arg[i]) < 0 {
			return false
		}
	}
	return arg != "" && arg[0] != '='
}

// shellWords are read as syntax where a command begins, in one shell or another.
var shellWords = []string{
	"and", "begin", "break", "builtin", "case", "command", "continue", "coproc", "do", "done", "elif", "else", "end",
	"esac", "exec", "fi", "for", "foreach", "function", "goto", "if", "in", "nocorrect", "noglob", "not", "or",
	"repeat", "return", "select", "switch", "then", "time", "until", "while",
}

// isPlainProgram holds for the first word, where 'a=b' would be an assignment
// and 'if' the beginning of a statement (in fish it is one even quoted).
func isPlainProgram(arg string) bool {
	return !strings.Contains(arg, "=") && !slices.Contains(shellWords, arg)
}
