package access

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with an access file. Key is the dotted
// key it concerns, empty for the file as a whole.
type Problem struct {
	Line    int
	Key     string
	Message string
}

func (p Problem) String() string {
	if p.Key == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", p.Line, p.Key, p.Message)
}

// Problems is everything that is wrong with an access file, by line. It never
// repeats a value of the file that was refused: somebody may have put a secret
// there.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}
