package main

import (
	"maps"
	"slices"
	"strings"
)

// kernel is one of Debian's, and what is asked of it.
type kernel struct {
	name  string
	suite string
	jobs  []job
	// cannot says why a test is skipped or left out in these machines, and
	// partly which parts of tests are.
	cannot map[string]string
	partly string
}

var kernels = []kernel{
	// 6.1: no SO_PEERPIDFD.
	{name: "below-floor", suite: "bookworm", jobs: refusals},
	// 6.12: pidfs, but no PIDFD_GET_INFO.
	{name: "fdinfo", suite: "trixie", cannot: oneWay, partly: "subtests named info ask for PIDFD_GET_INFO", jobs: []job{
		peerTests("peer as an account", account, oneWay, "/^info$", "//^info$"),
		peerTests("peer as root", 0, oneWay, "/^info$", "//^info$").only(needRoot),
		brokerTests, try,
	}},
	// What Debian will have next. The tests run as an account by themselves.
	{name: "new", suite: "trixie-backports", cannot: static, jobs: []job{peerTests("peer", 0, static), brokerTests, try}},
}

// floor is the sentence that a person must get below the floor.
const floor = "Yett needs kernel 6.5 or later"

var refusals = []job{
	{Name: "yett serve", Argv: []string{"/bin/yett", "serve", "--home", "/home/ada/yett"}, UID: account, Seconds: 30,
		exit: 1, refusal: true, says: []string{"This system cannot serve", floor}},
	{Name: "yett try", Argv: []string{"/bin/yett", "try", "--yes"}, UID: account, Seconds: 60,
		exit: 1, refusal: true, says: []string{"This system cannot serve", floor}},
	{Name: "yett-mcp", Argv: []string{"/bin/yett-mcp", "--home", "/home/ada/yett"}, UID: account, Seconds: 30,
		Stdin: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"kernels","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_access","arguments":{}}}
`, Await: `"id":2`, refusal: true, says: []string{`"isError":true`}},
}

// static are the tests that cannot run as a static program.
var static = map[string]string{
	"TestParent_WhatCannotBeTold": "a process of it waits by select{}, which without cgo is a deadlock to Go",
}

// oneWay are the tests that ask for PIDFD_GET_INFO itself, and the static ones.
var oneWay = map[string]string{
	"TestParent_WhatCannotBeTold": static["TestParent_WhatCannotBeTold"],
	"TestU07_BothWaysAnswerAlike": "compares with PIDFD_GET_INFO, which came with 6.13",
	"TestOf_BothWaysAgree":        "compares with PIDFD_GET_INFO, which came with 6.13",
}

// needRoot are the tests that an ordinary account skips.
var needRoot = map[string]string{
	"TestHash_FuseIsNotHashedAndHoldsNothingUp": "mounts",
	"TestHash_DeadlineOfItsOwn":                 "mounts",
	"TestOf_HiddenInOtherUserNamespace":         "makes a user namespace for another account",
	"TestOf_ContainerIsAWord":                   "makes a pid namespace alone",
	"TestOf_UnseenPidNamespaceRefused":          "makes a pid namespace alone",
	"TestParent_PidOneOfANamespaceRefused":      "makes a pid namespace alone",
	"TestU09_OtherAccountAfterConnect":          "changes its account",
	"TestU08_SetuidPeerIsTheOtherAccount":       "makes a program of another account",
	"TestU08_CoveredByAMount":                   "mounts",
	"TestU08_NamedLikeMemory":                   "mounts",
	"TestStdio_WatchDenied":                     "has a pipe of another account",
}

// anyOf is the pattern of the tests of a table.
func anyOf(tests map[string]string) string {
	names := slices.Sorted(maps.Keys(tests))
	for i, name := range names {
		names[i] = "^" + name + "$"
	}
	return strings.Join(names, "|")
}

// peerTests runs the tests of package peer but for those that cannot run, and
// but for parts of tests that match a pattern.
func peerTests(name string, uid int, cannot map[string]string, parts ...string) job {
	skip := strings.Join(append([]string{anyOf(cannot)}, parts...), "|")
	return job{Name: name, Argv: []string{"/tests/peer.test", "-test.v=test2json", "-test.timeout=10m", "-test.skip=" + skip}, UID: uid, Seconds: 620, Tests: true}
}

// only keeps the tests of a table.
func (j job) only(tests map[string]string) job {
	j.Argv = append(slices.Clip(j.Argv), "-test.run="+anyOf(tests))
	return j
}

// brokerTests are those of the whole broker that ask most of the kernel.
var brokerTests = job{Name: "broker", UID: account, Env: []string{"YETTTEST_BIN=/bin"}, Seconds: 620, Tests: true,
	Argv: []string{"/tests/yetttest.test", "-test.v=test2json", "-test.timeout=10m",
		"-test.run=^(TestU09_|TestAttackStolen|TestAttackReapedBeforeAccept|TestAttackExecOfTheSameFile|TestAttackParentExits|TestAttackGrandchildWritesOn|TestNoInjectionGuard)"}}

var try = job{Name: "yett try", Argv: []string{"/bin/yett", "try", "--yes", "--json"}, UID: account, Seconds: 150, Again: true, says: []string{`"ok":true`}}
