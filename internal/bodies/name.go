package bodies

import (
	"slices"
	"strconv"
	"strings"
)

// The streams of an action that have a body each.
const (
	Body       = "body" // of an HTTP answer, or standard output
	Stderr     = "stderr"
	StdoutTail = "stdout-tail" // the end of a standard output whose beginning is its body
	StderrTail = "stderr-tail"
)

// Streams are all of them.
func Streams() []string { return []string{Body, Stderr, StdoutTail, StderrTail} }

// Name says which body it is: the row of the action's intent, the session that
// may read it, and the stream.
type Name struct {
	Row     int64
	Session string
	Stream  string
}

const unfinished = ".part"

func (n Name) file() string { return strconv.FormatInt(n.Row, 10) + "." + n.Session + "." + n.Stream }

func (n Name) valid() bool { parsed, ok := parseName(n.file()); return ok && parsed == n }

// parseName reads the name of a file of ours; others are not touched.
func parseName(file string) (Name, bool) {
	parts := strings.Split(file, ".")
	if len(parts) != 3 || parts[1] == "" || !slices.Contains(Streams(), parts[2]) {
		return Name{}, false
	}
	row, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || row < 1 || strconv.FormatInt(row, 10) != parts[0] {
		return Name{}, false
	}
	for i := range len(parts[1]) {
		c := parts[1][i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return Name{}, false
		}
	}
	return Name{row, parts[1], parts[2]}, true
}
