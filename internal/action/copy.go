package action

import (
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Directions of a copy, as seen from this machine.
const (
	Up   = "up"   // from here to the host
	Down = "down" // from the host to here
)

// maxFilePath is PATH_MAX of Linux.
const maxFilePath = 4096

// Copy is a canonical copy of one file over SSH. Both paths are what is opened,
// byte for byte, and no symbolic link is followed on the way to either.
type Copy struct {
	Direction string        `json:"direction"`
	Local     string        `json:"local"`
	Remote    string        `json:"remote"`
	Overwrite bool          `json:"overwrite,omitempty"`  // a file that is there may be replaced
	Timeout   time.Duration `json:"timeout_ns,omitempty"` // 0: the executor's own limit
}

// CopyInput is a copy as the agent wrote it.
type CopyInput struct {
	Direction, Local, Remote string
	Overwrite                bool
	TimeoutMS                *int64
}

// NewCopy makes the canonical form of a copy. A path that is not in canonical
// form is refused, not put right: the agent should know what it names.
func NewCopy(in CopyInput) (*Copy, *Refusal) {
	if in.Direction != Up && in.Direction != Down {
		return nil, badRequest("direction is %q (to the host) or %q (from the host)", Up, Down)
	}
	for _, p := range []struct{ name, value string }{{"local", in.Local}, {"remote", in.Remote}} {
		if why := FilePath(p.value); why != "" {
			return nil, badRequest("%s %s", p.name, why)
		}
	}
	if strings.Contains(in.Remote, `\`) { // a separator where the host runs Windows
		return nil, badRequest("remote has a backslash")
	}
	out := &Copy{Direction: in.Direction, Local: in.Local, Remote: in.Remote, Overwrite: in.Overwrite}
	var r *Refusal
	if out.Timeout, r = timeout(in.TimeoutMS); r != nil {
		return nil, r
	}
	return out, nil
}

// FilePath says why a string is not the canonical absolute path of one file, or
// nothing.
func FilePath(p string) string {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "is not an absolute path"
	case len(p) > maxFilePath:
		return "is too long a path"
	case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl):
		return "has a control character, or is not UTF-8"
	case p == "/" || strings.HasSuffix(p, "/"):
		return "names a directory: a file is copied, one at a time"
	case path.Clean(p) != p:
		return "has empty or dot segments: it must be written as " + path.Clean(p)
	case strings.Contains(p, "*"):
		return "has a '*': a file is copied, one at a time, by its name"
	}
	return ""
}

// timeout is the limit that an action brings of its own.
func timeout(ms *int64) (time.Duration, *Refusal) {
	if ms == nil {
		return 0, nil
	}
	if *ms < 1 || *ms > maxTimeoutMS {
		return 0, badRequest("timeout_ms is not within 1 and %d", maxTimeoutMS)
	}
	return time.Duration(*ms) * time.Millisecond, nil
}
