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
// Below testdata stand, for each host, the card that it leads to, as the
// document and as the terminal shows it, and what was seen of it. Values that
// change with each run are replaced by their names in angle brackets;
// make hosts UPDATE=1 writes the files anew.
package hosts
