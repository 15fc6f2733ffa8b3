// Package vectors holds the test vectors of the socket protocol: what a client
// sends, and what must come back. They are files, so that a client in another
// language can run them too; README.md says how. The package trusts nobody and
// does nothing but carry them.
package vectors

import "embed"

// Files has the vectors (*.json, but for begin.json, which has the steps that
// vectors begin with) and the access file that they run under.
//
//go:embed *.json access.toml
var Files embed.FS
