package install

import (
	"os"
	"path/filepath"
	"testing"
)

const shim = "/opt/yett/bin/yett-mcp"

// home is the home directory of an account, for a test.
func home(t *testing.T) Place {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Place{Home: dir, UID: os.Getuid(), System: "linux"}
}

// lay puts a file below the home directory and returns its path.
func lay(t *testing.T, p Place, below, text string) string {
	t.Helper()
	path := p.path(below)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func client(t *testing.T, id string) Client {
	t.Helper()
	c, ok := ClientNamed(id)
	if !ok {
		t.Fatalf("there is no client %s", id)
	}
	return c
}

// connect connects a client and writes.
func connect(t *testing.T, p Place, id string, o Options) *Plan {
	t.Helper()
	plan, err := p.Connect(client(t, id), shim, o)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	if plan.Changed() {
		if _, err := p.Apply(plan); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	return plan
}

func disconnect(t *testing.T, p Place, id string) *Plan {
	t.Helper()
	plan, err := p.Disconnect(client(t, id), Options{})
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	if _, err := p.Apply(plan); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return plan
}
