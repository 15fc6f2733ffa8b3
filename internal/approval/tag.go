package approval

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// words are short, plain and far apart in spelling: 64 of them, two make a
// tag. A tag tells windows apart; it is no secret and proves nothing.
var words = strings.Fields(`
	amber anchor apple arrow autumn badger basin beacon birch bramble bronze candle
	canyon cedar cherry clover cobalt comet copper coral crane cricket dune eagle
	ember falcon fern flint forest garnet ginger glacier harbor hazel heron indigo
	ivory jasper juniper kelp kettle lantern lemon lilac maple marble meadow mint
	nutmeg oak olive onyx opal orchid otter pebble pepper quartz raven river
	saffron thistle velvet willow`)

// Tag returns the two words that stand on the card and in the agent's result.
func Tag(approvalID string) string {
	h := sha256.Sum256([]byte("yett-tag-v1\n" + approvalID))
	n := uint64(len(words))
	v := binary.BigEndian.Uint64(h[:8])
	return words[v%n] + " " + words[v/n%n]
}
