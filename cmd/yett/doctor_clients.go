package main

import (
	"maps"
	"slices"

	"github.com/yett-broker/yett/internal/doctor"
	"github.com/yett-broker/yett/internal/install"
)

// clientFiles are where clients of MCP keep their servers: below a home
// directory as yett connect knows them, and in a project.
func clientFiles() []doctor.ClientFile {
	var all []doctor.ClientFile
	for _, c := range install.Clients() {
		for _, system := range slices.Sorted(maps.Keys(c.Files)) {
			for _, path := range c.Files[system] {
				if f := (doctor.ClientFile{Client: c.Name, Path: path, Sandbox: c.Sandbox}); !slices.Contains(all, f) {
					all = append(all, f)
				}
			}
		}
	}
	for _, c := range install.Clients() {
		if c.Project != "" {
			all = append(all, doctor.ClientFile{Client: c.Name, Path: c.Project, Project: true, Sandbox: c.Sandbox})
		}
	}
	return all
}
