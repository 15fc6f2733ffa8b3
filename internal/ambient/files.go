package ambient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// Bounds of what is read: of one file, and of a project's tree.
const (
	maxFile    = 4 << 20
	maxDepth   = 6
	maxEntries = 50_000
)

// home looks at every place of the table and at the keys of ssh.
func (s *scan) home(home string) {
	for _, p := range places() {
		paths, err := filepath.Glob(filepath.Join(escapeGlob(home), p.path))
		if err != nil {
			s.failed(fmt.Errorf("looking for %s: %w", p.path, err))
		}
		for _, path := range paths {
			s.file(path, p)
		}
	}
	s.keys(filepath.Join(home, ".ssh"))
}

// escapeGlob keeps a home directory from being a pattern.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

func (s *scan) file(path string, p place) {
	text, err := readFile(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.failed(err)
		}
		return
	}
	defer clear(text)
	if p.kind == KindHelper && slices.ContainsFunc(s.found, func(f Finding) bool { return f.Path == path }) {
		return // the file has the value itself
	}
	for i, e := range entriesOf(text, p.format, p.keys) {
		f := p.finding(path, e)
		f.at = i
		s.add(f)
		clear(e.value)
	}
}

func entriesOf(text []byte, format string, keys []string) []entry {
	return slices.DeleteFunc(readers[format](text, keys), func(e entry) bool { return len(e.value) == 0 })
}

// finding is what may be said of an entry.
func (p place) finding(path string, e entry) Finding {
	f := Finding{Name: p.tool, Kind: p.kind, Path: path, Where: whereOf(e), Readers: readersOf(path), Service: p.serviceOf(e.section),
		SignOut: p.signOut, Source: p.source, format: p.format, keys: p.keys, Obstacle: e.obstacle}
	if e.section != "" {
		f.Name += ":" + word(withoutUser(e.section))
	}
	return f
}

// homeOfService is the host whose tokens a preset's origin takes. A token of a
// server of one's own goes elsewhere.
var homeOfService = map[string]string{"github": "github.com", "gitlab": "gitlab.com"}

func (p place) serviceOf(section string) string {
	if p.service == "host" {
		host, _, _ := strings.Cut(word(withoutUser(section)), "/")
		if !strings.Contains(host, ".") {
			return ""
		}
		return "https://" + host
	}
	if home := homeOfService[p.service]; home != "" && section != home {
		return ""
	}
	return p.service
}

func whereOf(e entry) string {
	parts := []string{}
	for _, s := range []string{withoutUser(e.section), e.key} {
		if s != "" {
			parts = append(parts, word(s))
		}
	}
	return strings.Join(parts, ", ")
}

// keys finds private keys that need no passphrase.
func (s *scan) keys(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.failed(err)
	}
	for _, d := range entries {
		path := filepath.Join(dir, d.Name())
		text, err := readFile(path)
		if err != nil {
			if !errors.Is(err, errNoFile) && !errors.Is(err, fs.ErrNotExist) {
				s.failed(err)
			}
			continue
		}
		if isOpenKey(text) {
			s.add(Finding{Name: "ssh:" + word(d.Name()), Kind: KindPrivateKey, Path: path, Readers: readersOf(path),
				Source: "https://man.openbsd.org/ssh-keygen", format: "file"})
		}
		clear(text)
	}
}

func isOpenKey(text []byte) bool {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("-----BEGIN ")) || !bytes.Contains(text, []byte("PRIVATE KEY-----")) {
		return false
	}
	_, err := ssh.ParseRawPrivateKey(text)
	return err == nil
}

// skipped are directories without files of a person's own.
var skipped = []string{".git", "node_modules", "vendor", ".venv", "venv", "target", "dist", "__pycache__"}

// project finds files of variables in a tree.
func (s *scan) project(ctx context.Context, root string) {
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if seen++; seen > maxEntries {
			return fmt.Errorf("%s has more than %d entries: the rest was not looked at", root, maxEntries)
		}
		switch depth := strings.Count(strings.TrimPrefix(path, root), string(filepath.Separator)); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.failed(err)
		case d.IsDir() && path != root && (slices.Contains(skipped, d.Name()) || depth > maxDepth):
			return fs.SkipDir
		case !d.IsDir() && isDotenv(d.Name()):
			s.dotenv(path)
		}
		return nil
	})
	if err != nil {
		s.failed(err)
	}
}

// isDotenv knows files of variables, and leaves out samples of them.
func isDotenv(name string) bool {
	if name != ".env" && name != ".envrc" && !strings.HasPrefix(name, ".env.") && !strings.HasSuffix(name, ".env") {
		return false
	}
	for _, sample := range []string{"example", "sample", "template", "dist"} {
		if strings.HasSuffix(name, "."+sample) {
			return false
		}
	}
	return true
}

func (s *scan) dotenv(path string) {
	text, err := readFile(path)
	if err != nil {
		s.failed(err)
		return
	}
	defer clear(text)
	for i, e := range entriesOf(text, "dotenv", nil) {
		s.add(Finding{Name: "dotenv:" + word(e.key), Kind: KindVariable, Path: path, Where: word(e.key), Readers: readersOf(path),
			Service: services()[e.key], Source: "https://github.com/motdotla/dotenv", format: "dotenv", at: i, Obstacle: e.obstacle})
	}
}

// errNoFile: what lies there is no file that can be read and has an end.
var errNoFile = errors.New("not a regular file")

// readFile reads a file of bounded size and waits for nothing; a link is
// followed, as the tools do.
func readFile(path string) ([]byte, error) {
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
		return nil, fmt.Errorf("%s: %w", path, errNoFile)
	}
	if st.Size() > maxFile {
		return nil, fmt.Errorf("%s is longer than %d bytes and was not read", path, maxFile)
	}
	text := make([]byte, st.Size())
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		clear(text)
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return text[:n], nil
}

// readersOf says who can read a file, by its mode and those of the directories
// above it.
func readersOf(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "not told"
	}
	var st unix.Stat_t
	if unix.Stat(real, &st) != nil {
		return "not told"
	}
	group, others := st.Mode&0o040 != 0, st.Mode&0o004 != 0
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		var d unix.Stat_t
		if unix.Stat(dir, &d) != nil {
			return "not told"
		}
		group, others = group && d.Mode&0o011 != 0, others && d.Mode&0o001 != 0
		if dir == filepath.Dir(dir) {
			break
		}
	}
	by := "this account"
	switch {
	case others:
		by = "every account"
	case group:
		by = fmt.Sprintf("this account and group %d", st.Gid)
	}
	if st.Nlink > 1 {
		by += ", and by whom another name of the file lets"
	}
	return by
}
