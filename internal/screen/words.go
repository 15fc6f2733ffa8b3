package screen

import (
	"strings"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// Span writes a duration without the units that are zero.
func Span(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// GrantWords name what a session may use, each with its own end: a grant may end
// before its session.
func GrantWords(s wire.Session, at func(time.Time) string) []string {
	var words []string
	for _, g := range s.Grants {
		how := "until "
		if g.Once {
			how = "once, until "
		}
		words = append(words, g.Capability+" ("+how+at(g.Until)+")")
	}
	return words
}

// KeyName is the name of a key, with its kind where it is no passkey.
func KeyName(k wire.Passkey) string {
	if k.Kind == wire.KindTouchID {
		return approval.Escape(k.Name, 1000) + " (Touch ID)"
	}
	return approval.Escape(k.Name, 1000)
}
