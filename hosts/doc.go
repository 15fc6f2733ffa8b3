// Package hosts drives the hosts of agents that people use, with the real
// yett-mcp and a real broker: the released Claude Code, Codex CLI, Gemini CLI
// and MCP inspector, as package.json pins them. Their model is a stand-in
// (package standin) on loopback.
//
// The tests have the build tag hosts and run by make hosts, apart from make
// test: they install about a gigabyte from npm. Started as root they run as an
// ordinary account in a network namespace that has loopback only; otherwise
// the hosts get a proxy that leads nowhere. Each run has a private HOME.
//
// Below testdata stand, for each host:
//
//	NAME.card.json    its card, with values that stand for those of one run
//	NAME.card.txt     the same on a terminal, by a test of cmd/yett
//	NAME.seen.txt     its processes, what they are to yett-mcp, the tools' names
//	NAME.begins.txt   methods and protocol versions up to its first tool call
//	NAME.missing.txt  what its model hears when no broker runs
//	NAME.locked.txt   what its model hears when the broker is locked
//
// make hosts UPDATE=1 writes them anew; docs/hosts.md says what they mean.
package hosts
