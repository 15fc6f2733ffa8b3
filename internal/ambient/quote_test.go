package ambient

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// staysWhole holds that no finding but those named plain can be taken or
// removed, and that the file is then what it was.
func staysWhole(t *testing.T, found []Finding, names []string, plain ...string) {
	t.Helper()
	if got := namesOf(found); !slices.Equal(got, names) {
		t.Errorf("found %v, want %v", got, names)
	}
	for _, f := range found {
		if slices.Contains(plain, f.Name) {
			if _, err := Value(f, nil); err != nil || f.Obstacle != "" {
				t.Errorf("%s: %v %s", f.Name, err, f.Obstacle)
			}
			continue
		}
		if f.Obstacle == "" || f.HasValue() {
			t.Errorf("%s of %s can be moved", f.Name, f.Path)
		}
		before, _ := os.ReadFile(f.Path)
		text := slices.Clone(before)
		for _, e := range entriesOf(text, f.format, f.keys) {
			if err := Remove(f, slices.Clone(e.value)); err == nil {
				t.Errorf("%s was removed", f.Name)
			}
		}
		g := f
		g.Obstacle = "" // the file changed after it was looked at
		if _, err := Value(g, nil); !errors.Is(err, ErrNoValue) {
			t.Errorf("%s: %v", f.Name, err)
		}
		if after, _ := os.ReadFile(f.Path); string(after) != string(before) {
			t.Errorf("%s: the file changed", f.Name)
		}
	}
}

// TestAdoptLeavesValuesOverSeveralLines: what a shell or a library reads as
// more than the text of one line stays, and its lines are no variables.
func TestAdoptLeavesValuesOverSeveralLines(t *testing.T) {
	for _, text := range []string{
		"A_KEY=\"-----BEGIN\nSECOND_TOKEN=" + canary + "\n-----END\"\n",
		"A_KEY='-----BEGIN\nSECOND_TOKEN=" + canary + "\n-----END'\n",
		"A_KEY=`-----BEGIN\nSECOND_TOKEN=" + canary + "\n-----END`\n",
		"A_KEY=$(cat <<E\nSECOND_TOKEN=" + canary + "\nE\n)\n",
		"export A_KEY=abc\\\nSECOND_TOKEN=" + canary + "\n",
		"A_KEY=`cat x`\n", "A_KEY=a$(cat x)\n", "A_KEY=a${B}c\n", "A_KEY=\"a$B\"\n",
		"A_KEY=\"a\\nb\"\n", "A_KEY='a'\"b\"\n", "A_KEY=a b\n", "A_KEY=a;B=c\n", "A_KEY=a#b\n", "A_KEY=\"a\" B=c\n",
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, ".env"), []byte(text+"Z_TOKEN='"+canary+"' # end\n"), 0o600))
		staysWhole(t, find(t, Account{Project: dir}), []string{"dotenv:A_KEY", "dotenv:Z_TOKEN"}, "dotenv:Z_TOKEN")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("NOTE=it's\nSECOND_TOKEN="+canary+"\nA_KEY=\"open\nB_KEY=x\n"), 0o600))
	staysWhole(t, find(t, Account{Project: dir}), []string{"dotenv:?", "dotenv:?-2", "dotenv:?-3"})
}

// TestAdoptLeavesSeveralLinesInEveryFormat: the same of the files of tools.
func TestAdoptLeavesSeveralLinesInEveryFormat(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		names         []string
	}{
		{".aws/credentials", "[a]\naws_secret_access_key = x\n  [" + canary + "]\n", []string{"aws:a"}},
		{".cargo/credentials.toml", "[a]\ntoken = \"\"\"x\n[" + canary + "]\ntoken = y\n\"\"\"\n", []string{"cargo:a", "cargo:?"}},
		{".pypirc", "[a]\npassword = \"x\n[" + canary + "]\ny\"\n", []string{"pypi:a"}},
		{".pypirc", "[a]\npassword = x # y\n", []string{"pypi:a"}},
		{".my.cnf", "[a]\npassword = x\\\ny\n", []string{"mysql:a"}},
		{".npmrc", "//r.example/:_authToken=\"x\n//s.example/:_authToken=a${B}\n//t.example/:_authToken=a;b\n", []string{"npm:r.example", "npm:s.example", "npm:t.example"}},
		{".netrc", "machine a.example login x password \"a machine " + canary + " b\"\nmacdef init\nmachine " + canary + " password x\n\n", []string{"netrc:a.example"}},
		{".config/doctl/config.yaml", "access-token: |\n  " + canary + ":\n    access-token: x\n", []string{"digitalocean"}},
		{".config/doctl/config.yaml", "access-token: \"x\n  " + canary + ":\n  access-token: x\"\n", []string{"digitalocean"}},
		{".config/doctl/config.yaml", "access-token: x\n  " + canary + "\n", []string{"digitalocean"}},
		{".terraformrc", "credentials \"a.example\" {\n  token = <<E\ncredentials \"" + canary + "\"\nE\n}\n", []string{"terraform:a.example"}},
		{".pgpass", "db:5432:a:b:x\\:y\n", []string{"postgres:db"}},
		{".git-credentials", "https://u:a/" + canary + "@r.example\n", []string{"git:r.example"}},
	} {
		home := t.TempDir()
		plant(t, home, c.pattern, c.text)
		staysWhole(t, find(t, Account{Homes: []string{home}}), c.names)
	}
}

// TestAdoptLeavesNamesThatStandTwice: which of them is in force is the tool's
// to say.
func TestAdoptLeavesNamesThatStandTwice(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	plant(t, home, ".cargo/credentials.toml", "[registry]\ntoken = \"x\"\n[registry]\ntoken = \"y\"\n")
	plant(t, home, ".npmrc", "//r.example/:_authToken=x\n//r.example/:_authToken=y\n")
	staysWhole(t, find(t, Account{Homes: []string{home}}), []string{"npm:r.example", "npm:r.example-2", "cargo:registry", "cargo:registry-2"})
	must(t, os.WriteFile(filepath.Join(project, ".env"), []byte("DD_TOKEN=first\nexport DD_TOKEN=second\nE_TOKEN=x\nE_TOKEN=\n"), 0o600))
	found := find(t, Account{Project: project})
	staysWhole(t, found, []string{"dotenv:DD_TOKEN", "dotenv:DD_TOKEN-2", "dotenv:E_TOKEN"})
	if found[0].Obstacle != standsTwice {
		t.Errorf("%q", found[0].Obstacle)
	}
}

// TestAdoptNamesHaveNoUser: user and password of a URL are in no name.
func TestAdoptNamesHaveNoUser(t *testing.T) {
	home := t.TempDir()
	plant(t, home, ".docker/config.json", `{"auths":{"https://user:`+canary+`@reg.example":{"auth":"x"},"`+canary+`@b.example":{"auth":"x"},"https://u:a/`+canary+`@c.example":{"auth":"x"}}}`)
	plant(t, home, ".npmrc", "//user:"+canary+"@r.example/:_authToken=x\n")
	plant(t, home, ".yarnrc.yml", "npmRegistries:\n  \"https://"+canary+"@y.example\":\n    npmAuthToken: x\n")
	plant(t, home, ".terraformrc", "credentials \"u:"+canary+"@t.example\" {\n  token = \"x\"\n}\n")
	plant(t, home, ".netrc", "machine https://u:"+canary+"@n.example password x\n")
	found := find(t, Account{Homes: []string{home}})
	names := namesOf(found)
	slices.Sort(names)
	want := []string{"docker:?", "docker:b.example", "docker:https://reg.example", "netrc:https://n.example", "npm:r.example", "terraform:t.example", "yarn:https://y.example"}
	if !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	for _, f := range found {
		if strings.HasPrefix(f.Name, "npm:") && f.Service != "https://r.example" {
			t.Errorf("%+v", f)
		}
	}
	if s := word("x https"); s != "?" {
		t.Error(s)
	}
	if s := word("https://u:" + canary + "@h"); s != "https://h" {
		t.Error(s)
	}
}

// TestAdoptSaysThatAnotherNameHasIt: a file with two names is not emptied
// under one of them.
func TestAdoptSaysThatAnotherNameHasIt(t *testing.T) {
	for pattern, text := range map[string]string{".npmrc": "//r.example/:_authToken=" + canary + "\n", ".vault-token": canary} {
		home := t.TempDir()
		path := plant(t, home, pattern, text)
		must(t, os.Link(path, filepath.Join(home, "other")))
		found := find(t, Account{Homes: []string{home}})
		if len(found) != 1 || !strings.Contains(found[0].Readers, "another name") {
			t.Fatalf("%+v", found)
		}
		err := Remove(found[0], []byte(canary))
		if !errors.Is(err, ErrByHand) || !strings.Contains(err.Error(), "another name of the file has it") {
			t.Errorf("%v", err)
		}
		if after, _ := os.ReadFile(path); string(after) != text {
			t.Error("it was taken away under one name")
		}
	}
}
