package action

import "strings"

// signingNames are what a request signed by AWS
// Signature Version 4 says about its signature, spelled as FoldHeader spells
// them. Where the broker signs, an agent says none of it.
var signingNames = map[string]bool{
	"x-amz-date":           true,
	"x-amz-security-token": true,
	"x-amz-content-sha256": true,
	"x-amz-algorithm":      true,
	"x-amz-credential":     true,
	"x-amz-expires":        true,
	"x-amz-signedheaders":  true,
	"x-amz-signature":      true,
}

// IsSigningHeader reports whether a header belongs to a signature.
func IsSigningHeader(name string) bool { return signingNames[FoldHeader(name)] }

// IsSigningParameter reports whether a query parameter belongs to a signature.
func IsSigningParameter(name string) bool {
	return AnyReading(name, func(folded string) bool { return signingNames[strings.ReplaceAll(folded, "_", "-")] })
}
