package peer

import (
	"path/filepath"
	"strings"
)

// runtimes are programs whose file says nothing about the code they run. A
// version may follow the name ("python3.12", "ruby3.2", "lua5.4").
var runtimes = []string{
	"ash", "bash", "bun", "busybox", "csh", "dash", "deno", "dotnet", "elvish",
	"emacs", "env", "erl", "fish", "gawk", "gjs", "guile", "java", "jshell", "julia", "ksh",
	"lua", "luajit", "mawk", "mksh", "mono", "node", "nodejs", "npm", "npx", "nu", "perl", "php",
	"pnpm", "pwsh", "pypy", "python", "qjs", "racket", "Rscript", "ruby", "sbcl", "scala",
	"sh", "tclsh", "tcsh", "tsx", "uv", "uvx", "wasmtime", "wish", "yarn", "zsh",
}

// inlineFlags take code or a module name instead of a script.
var inlineFlags = map[string]bool{
	"-c": true, "-e": true, "-m": true, "-p": true, "-r": true, "--eval": true, "--print": true,
}

// runtimeOf names the runtime that exe is, or returns nothing. The script is
// what the arguments claim: the first one that is not an option.
func runtimeOf(exe string, argv []string) (name, script string) {
	name = runtimeName(filepath.Base(exe))
	if name == "" || len(argv) == 0 {
		return name, ""
	}
	for _, arg := range argv[1:] {
		if inlineFlags[arg] {
			return name, ""
		}
		if arg != "" && arg[0] != '-' {
			return name, arg
		}
	}
	return name, ""
}

func runtimeName(base string) string {
	for _, known := range runtimes {
		rest, ok := strings.CutPrefix(base, known)
		if ok && strings.Trim(rest, "0123456789.-") == "" {
			return known + majorOf(rest)
		}
	}
	return ""
}

// majorOf keeps "3" of "3.12", since people say python3.
func majorOf(version string) string {
	major, _, _ := strings.Cut(version, ".")
	if strings.Contains(major, "-") {
		return ""
	}
	return major
}

// supervisors adopt orphans or start things on nobody's behalf: a process
// whose parent is one of these has no agent behind it. Being listed can only
// refuse. The kernel does not tell who is a subreaper, so this is by name:
// init systems, container inits and shims, and service supervisors.
var supervisors = map[string]bool{
	"systemd": true, "init": true, "launchd": true, "openrc-init": true, "runit": true, "runsv": true, "runsvdir": true,
	"s6-svscan": true, "s6-supervise": true, "supervisord": true, "dinit": true,
	"docker-init": true, "tini": true, "tini-static": true, "dumb-init": true, "catatonit": true, "conmon": true,
	"containerd-shim": true, "containerd-shim-runc-v2": true,
}

// supervisor reports whether one of the names of a process is on the list.
func supervisor(names ...string) bool {
	for _, name := range names {
		if supervisors[filepath.Base(name)] {
			return true
		}
	}
	return false
}
