package access

import (
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yett-broker/yett/internal/action"
)

// Both is the direction of a capability that lets files go either way.
const Both = "both"

const (
	// defaultMaxSize is the largest file that is copied where the capability
	// does not say.
	defaultMaxSize = 64 << 20
	// maxMaxSize keeps one copy within a time that somebody waits for.
	maxMaxSize = 16 << 30
)

func (b *builder) copyCapability(t *table, c *Capability) {
	if s, ok := t.required("host"); ok {
		b.reference(t, "host", "host", s)
		c.Host = s
	}
	if s, ok := t.required("direction"); ok {
		if s != action.Up && s != action.Down && s != Both {
			t.problem("direction", `must be %q (to the host), %q (from the host) or %q`, action.Up, action.Down, Both)
		}
		c.Direction = s
	}
	for _, p := range t.requiredList("remote") {
		everything, err := checkFilePattern(p.value)
		checkPattern(t, "remote", p, everything, err, c.Confirm)
		c.Remote = append(c.Remote, p.value)
	}
	for _, d := range t.requiredList("local") {
		if why := action.FilePath(d.value); why != "" {
			if d.value == "/" || strings.HasSuffix(d.value, "/") {
				why = "must be a directory below /, written without a slash at its end"
			}
			t.problemAt(d.line, "local", "%s", why)
		}
		c.Local = append(c.Local, d.value)
	}
	c.MaxSize = defaultMaxSize
	if s, ok := t.optional("max_size"); ok {
		n, err := readSize(s)
		if err != nil {
			t.problem("max_size", "%v", err)
		}
		c.MaxSize = n
	}
	c.Overwrite = t.boolean("overwrite")
}

// checkFilePattern accepts a canonical path in which a segment may be '*' and
// the last one '**', as in the paths of HTTP. everything: no segment is fixed.
func checkFilePattern(pattern string) (everything bool, err error) {
	if strings.Contains(pattern, `\`) {
		return false, errors.New("has a backslash")
	}
	if !strings.HasPrefix(pattern, "/") {
		return false, errors.New("is not an absolute path")
	}
	segments := strings.Split(pattern[1:], "/")
	wild, fixed := false, false
	for i, s := range segments {
		switch {
		case s == "**" && i == len(segments)-1, s == "*":
			wild = true
			segments[i] = "x"
		case s == "**":
			return false, errors.New("'**' may only be the last segment")
		case strings.Contains(s, "*"):
			return false, errors.New("'*' must be a whole segment; it is not a shell wildcard")
		default:
			fixed = true
		}
	}
	if why := action.FilePath("/" + path.Join(segments...)); why != "" {
		return false, errors.New(why)
	}
	if plain := "/" + strings.Join(segments, "/"); path.Clean(plain) != plain {
		return false, errors.New("has empty or dot segments")
	}
	return wild && !fixed, nil
}

// outsideCopy returns why a copy is outside of a capability, or nothing.
func outsideCopy(c *Capability, a *action.Copy) string {
	// A path that is not canonical was not made by NewCopy: what it would match
	// is not what would be opened.
	for _, p := range []string{a.Local, a.Remote} {
		if action.FilePath(p) != "" {
			return "a path is not in canonical form"
		}
	}
	switch {
	case c.Direction != Both && c.Direction != a.Direction:
		return "the capability is for the direction " + c.Direction
	case !slices.ContainsFunc(c.Remote, func(pattern string) bool { return matchPath(pattern, a.Remote) }):
		return "the remote path is not among those of the capability"
	case c.LocalDirectory(a.Local) == "":
		return "the local path is in none of the capability's directories"
	case a.Overwrite && !c.Overwrite:
		return "the capability lets no file be overwritten"
	}
	return ""
}

// LocalDirectory returns the declared directory that a local path lies in, the
// longest one, or nothing.
func (c *Capability) LocalDirectory(local string) string {
	best := ""
	for _, d := range c.Local {
		if strings.HasPrefix(local, d+"/") && len(d) > len(best) {
			best = d
		}
	}
	return best
}

var (
	sizeForm  = regexp.MustCompile(`^([1-9][0-9]{0,9})(B|KiB|MiB|GiB)$`)
	sizeUnits = map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

func readSize(s string) (int64, error) {
	form := sizeForm.FindStringSubmatch(s)
	if form == nil {
		return 0, errors.New(`must be a number and one of B, KiB, MiB, GiB, as in "64MiB"`)
	}
	n, _ := strconv.ParseInt(form[1], 10, 64)
	if unit := sizeUnits[form[2]]; n <= math.MaxInt64/unit && n*unit <= maxMaxSize {
		return n * unit, nil
	}
	return 0, fmt.Errorf("is more than %s", SizeText(maxMaxSize))
}

// SizeText writes a size with the largest unit that divides it.
func SizeText(n int64) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if u := sizeUnits[unit]; n%u == 0 {
			return strconv.FormatInt(n/u, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// MaxSizeText is how the file would write MaxSize; empty where it has none.
func (c *Capability) MaxSizeText() string {
	if c.MaxSize == 0 {
		return ""
	}
	return SizeText(c.MaxSize)
}
