package yetttest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Programs of another release differ from these in one thing: the protocol
// versions that they speak. They are built with wire.go changed by an overlay,
// so that nothing in the programs can be told to speak another version.

// The tests that need them; without these none are built.
var versionTests = []string{"TestC12_OldAndNew", "TestC12_StatusAndStopReachEveryRelease"}

// releasePrograms returns the path of a program where yett is of one release and
// yett-mcp of another: "old" as built, "new" with the next version only.
func releasePrograms(yett, shim, name string) string {
	return Bin(filepath.Join("releases", yett+"-"+shim, name))
}

func buildReleases(dir string) error {
	if !wanted(versionTests) {
		return nil
	}
	dir = filepath.Join(dir, "releases")
	made := filepath.Join(dir, "made")
	if err := os.MkdirAll(made, 0o755); err != nil {
		return err
	}
	overlay, err := nextVersion(dir)
	if err != nil {
		return err
	}
	c := exec.Command("go", "build", "-buildvcs=false", "-overlay="+overlay, "-o", made+"/", "github.com/yett-broker/yett/cmd/yett", "github.com/yett-broker/yett/cmd/yett-mcp")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs of another version: %w\n%s", err, out)
	}
	of := map[string]string{"old": filepath.Dir(dir), "new": made}
	for yett, yettDir := range of {
		for shim, shimDir := range of {
			pair := filepath.Join(dir, yett+"-"+shim)
			if err := os.Mkdir(pair, 0o755); err != nil {
				return err
			}
			if err := os.Link(filepath.Join(yettDir, "yett"), filepath.Join(pair, "yett")); err != nil {
				return err
			}
			if err := os.Link(filepath.Join(shimDir, "yett-mcp"), filepath.Join(pair, "yett-mcp")); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextVersion writes an overlay in which the protocol is the next one. An
// overlay that the build has already is kept beside it.
func nextVersion(dir string) (string, error) {
	file, err := filepath.Abs("../wire/wire.go")
	if err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	if m := regexp.MustCompile(`-overlay=(\S+)`).FindStringSubmatch(os.Getenv("GOFLAGS")); m != nil {
		b, err := os.ReadFile(m[1])
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(b, &o); err != nil {
			return "", err
		}
	}
	from := file
	if o.Replace == nil {
		o.Replace = map[string]string{}
	} else if changed := o.Replace[file]; changed != "" {
		from = changed
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	next := strings.NewReplacer("ProtocolMin = 1\n", "ProtocolMin = 2\n", "ProtocolMax = 1\n", "ProtocolMax = 2\n").Replace(string(text))
	if strings.Count(next, " = 2\n") != 2 {
		return "", fmt.Errorf("%s does not name its versions as expected", from)
	}
	o.Replace[file] = filepath.Join(dir, "wire.go")
	if err := os.WriteFile(o.Replace[file], []byte(next), 0o644); err != nil {
		return "", err
	}
	b, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o644)
}

// wanted reports whether this run has any of the tests in it.
func wanted(tests []string) bool {
	for _, arg := range os.Args[1:] {
		pattern, ok := strings.CutPrefix(arg, "-test.run=")
		if !ok {
			continue
		}
		top, _, _ := strings.Cut(pattern, "/")
		re, err := regexp.Compile(top)
		if err != nil {
			return true
		}
		for _, name := range tests {
			if re.MatchString(name) {
				return true
			}
		}
		return false
	}
	return true
}

// programsIn makes the broker, and what the person runs, programs of another
// directory. Everything else of Broker speaks for the test's own release.
func (b *Broker) programsIn(dir string) {
	b.Under = []string{"/bin/sh", "-c", `shift; exec "$0" "$@"`, filepath.Join(dir, "yett")}
}

// runIn runs a command line of another directory.
func (b *Broker) runIn(dir string, args ...string) Result {
	b.T.Helper()
	c := exec.Command(filepath.Join(dir, "yett"), append(args, "--home", b.Home)...)
	c.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		if _, ok := err.(*exec.ExitError); !ok {
			b.T.Fatal(err)
		}
	}
	return Result{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

// shimIn starts a yett-mcp of another directory.
func (b *Broker) shimIn(dir string) *host {
	b.T.Helper()
	return b.host(exec.Command(filepath.Join(dir, "yett-mcp"), "--home", b.Home), nil).start().ready()
}
