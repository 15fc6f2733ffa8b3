package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
)

// ClientFile is a place where a client of MCP keeps its servers.
type ClientFile struct {
	Client  string
	Path    string // below a home directory, or below the project
	Project bool
	Sandbox string // a regular expression that matches where the client puts its servers into a sandbox
}

// maxClientFile bounds what is read; some clients keep histories in theirs.
const maxClientFile = 32 << 20

// shimWord finds a quoted word that names yett-mcp, in JSON, JSON with
// comments, TOML and YAML alike.
var shimWord = regexp.MustCompile(`"((?:[^"\\\n]|\\.)*yett-mcp(?:\.exe)?)"|'([^'\n]*yett-mcp)'`)

// clientFindings are about the yett-mcp that each client was told to start.
func clientFindings(s Subject) []Finding {
	var all []Finding
	told := 0
	for _, c := range s.Clients {
		roots := s.Accounts
		if c.Project {
			roots = []string{s.Project}
		}
		for _, root := range roots {
			if root == "" {
				continue
			}
			path := filepath.Join(root, c.Path)
			text, err := readBounded(path, maxClientFile)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				all = append(all, weaker("client", approval.Printable(c.Client+": "+err.Error()), ClientUnreadable))
				continue
			}
			words := shimWords(text)
			for _, word := range words {
				told++
				all = append(all, clientFinding(c.Client, path, word))
			}
			if len(words) > 0 && c.sandboxed(text) {
				all = append(all, weaker("client", approval.Printable(fmt.Sprintf("%s (%s) runs in a sandbox, and yett-mcp with it: it may not reach the broker's socket", c.Client, path)), ClientSandboxed))
			}
		}
	}
	if told == 0 {
		all = append(all, weaker("client", "no client's configuration that was looked at names yett-mcp", NoClient))
	}
	return all
}

func (c ClientFile) sandboxed(text []byte) bool {
	if c.Sandbox == "" {
		return false
	}
	found, err := regexp.Match(c.Sandbox, text)
	return found && err == nil
}

// shimWords are the commands in a configuration that end in yett-mcp, each once.
// The name of a server may be yett-mcp too: a word without a slash counts where
// nothing else does.
func shimWords(text []byte) []string {
	var paths, names []string
	for _, m := range shimWord.FindAllSubmatch(text, -1) {
		word := string(m[1]) + string(m[2])
		list := &names
		if strings.ContainsAny(word, `/\`) {
			list = &paths
		}
		if !slices.Contains(*list, word) {
			*list = append(*list, word)
		}
	}
	if len(paths) > 0 {
		return paths
	}
	return names
}

func clientFinding(client, config, command string) Finding {
	said := approval.Printable(fmt.Sprintf("%s (%s) starts %s", client, config, command))
	if !filepath.IsAbs(command) {
		return weaker("client", said+", which depends on where it looks for programs", ClientRelative)
	}
	var st unix.Stat_t
	if err := unix.Stat(command, &st); err != nil {
		return bad("client", said+", which is not there", ClientMissing)
	}
	path, dev, ino, err := endpoint.Installed(shimProgram)
	if err != nil || uint64(st.Dev) != dev || st.Ino != ino {
		return bad("client", said+", which is not the installed "+approval.Printable(path), ClientOther)
	}
	return good("client", said)
}

// readBounded reads a regular file, links followed, and waits for nothing.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return text, err
}
