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
				if f := (doctor.ClientFile{Client: c.Name, Path: path}); !slices.Contains(all, f) {
					all = append(all, f)
				}
			}
		}
	}
	return append(all, projectFiles...)
}

// projectFiles each name the document that says so.
var projectFiles = []doctor.ClientFile{
	{Client: "Claude Code", Path: ".mcp.json", Project: true},            // https://code.claude.com/docs/en/mcp
	{Client: "Codex", Path: ".codex/config.toml", Project: true},         // https://developers.openai.com/codex/mcp
	{Client: "Gemini CLI", Path: ".gemini/settings.json", Project: true}, // https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md
	{Client: "Cursor", Path: ".cursor/mcp.json", Project: true},          // https://cursor.com/docs/context/mcp
	{Client: "VS Code", Path: ".vscode/mcp.json", Project: true},         // https://code.visualstudio.com/docs/copilot/customization/mcp-servers
	{Client: "opencode", Path: "opencode.json", Project: true},           // https://opencode.ai/docs/mcp-servers
}
