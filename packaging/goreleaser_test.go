package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestReleasePublishesWhatIsMade: the release's configuration parses, knows no
// member that nobody reads, runs targets that exist, and takes every file that
// make package leaves, and no other.
func TestReleasePublishesWhatIsMade(t *testing.T) {
	text, err := os.Open("goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	var c struct {
		Version     int    `yaml:"version"`
		ProjectName string `yaml:"project_name"`
		Dist        string `yaml:"dist"`
		Before      struct {
			Hooks []string `yaml:"hooks"`
		} `yaml:"before"`
		Builds []struct {
			Skip bool `yaml:"skip"`
		} `yaml:"builds"`
		Checksum struct {
			Disable bool `yaml:"disable"`
		} `yaml:"checksum"`
		Changelog struct {
			Disable bool `yaml:"disable"`
		} `yaml:"changelog"`
		Release struct {
			Draft      bool   `yaml:"draft"`
			Prerelease string `yaml:"prerelease"`
			ExtraFiles []struct {
				Glob string `yaml:"glob"`
			} `yaml:"extra_files"`
		} `yaml:"release"`
	}
	dec := yaml.NewDecoder(text)
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if c.Version != 2 || len(c.Builds) != 1 || !c.Builds[0].Skip || !c.Checksum.Disable || !c.Release.Draft {
		t.Errorf("it does more than publish: %+v", c)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, hook := range c.Before.Hooks {
		target, ok := strings.CutPrefix(hook, "make ")
		if !ok || !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).Match(makefile) {
			t.Errorf("there is no %q", hook)
		}
	}
	for _, name := range []string{"yett_1.0.0_linux_amd64.tar.gz", "yett_1.0.0~rc.1_arm64.deb", "yett_1.0.0_darwin_universal.tar.gz", "yett.rb", "SHA256SUMS"} {
		taken := 0
		for _, f := range c.Release.ExtraFiles {
			if ok, err := filepath.Match(f.Glob, "dist/"+name); err != nil {
				t.Error(err)
			} else if ok {
				taken++
			}
		}
		if taken != 1 {
			t.Errorf("%s is published %d times", name, taken)
		}
	}
}
