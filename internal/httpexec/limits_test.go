package httpexec

import (
	"bytes"
	"compress/gzip"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// each writes every byte of the secret in one format.
func each(format string) string {
	var b strings.Builder
	for i := range len(secret) {
		fmt.Fprintf(&b, format, secret[i])
	}
	return b.String()
}

// TestEchoesAsDocumented: docs/architecture.md says which spellings of an echo
// are found and names those that are not.
func TestEchoesAsDocumented(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte(secret))
	z.Close()
	once := base64.StdEncoding.EncodeToString([]byte(secret))
	for spelling, found := range map[string]bool{
		secret: true, strings.ToUpper(secret): true, hex.EncodeToString([]byte(secret)): true, once: true,
		base64.URLEncoding.EncodeToString([]byte("a" + secret)): true,
		each("%%%02x"): true, each("%%25%02X"): true, each(`\x%02x`): true, each(`\u00%02x`): true, each(`\\u00%02x`): true,
		each("&#%d;"): true, each("&amp;#x%x;"): true, each("%c\x00"): true, each("%c\r\n\r\n"): true,

		each(`\%03o`): false, each(`\u{%x}`): false, each("=%02X"): false, each("%02x:"): false, each("%02x "): false,
		each("%%u00%02x"): false, base32.StdEncoding.EncodeToString([]byte(secret)): false,
		base64.StdEncoding.EncodeToString([]byte(once)): false, hex.EncodeToString([]byte(once)): false,
		zipped.String(): false, secret[:len(secret)-1]: false,
	} {
		s := newScrubber([]byte(secret))
		if got := s.text("<"+spelling+">") != "<"+spelling+">"; got != found {
			t.Errorf("%q: found %v", spelling, got)
		}
		s.wipe()
	}
}
