// Command yett-mcp is Yett's MCP server over standard input and output. An
// agent's MCP configuration names its path; everything else is in package shim.
package main

import (
	"os"

	"github.com/yett-broker/yett/internal/shim"
)

// version is set by the linker: -X main.version=…
var version = "0.0.0-dev"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin, stdout, stderr *os.File) int {
	return shim.Run(args, version, stdin, stdout, stderr)
}
