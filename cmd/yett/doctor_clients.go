package main

import "github.com/yett-broker/yett/internal/doctor"

// clientFiles are where clients of MCP keep their servers, on both systems.
// Each row names the document that says so.
var clientFiles = []doctor.ClientFile{
	{Client: "Claude Code", Path: ".claude.json"},                                                     // https://code.claude.com/docs/en/mcp
	{Client: "Claude Code", Path: ".mcp.json", Project: true},                                         // the same
	{Client: "Claude Desktop", Path: ".config/Claude/claude_desktop_config.json"},                     // https://modelcontextprotocol.io/docs/develop/connect-local-servers
	{Client: "Claude Desktop", Path: "Library/Application Support/Claude/claude_desktop_config.json"}, // the same
	{Client: "Codex", Path: ".codex/config.toml"},                                                     // https://developers.openai.com/codex/mcp
	{Client: "Codex", Path: ".codex/config.toml", Project: true},                                      // the same
	{Client: "Gemini CLI", Path: ".gemini/settings.json"},                                             // https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md
	{Client: "Gemini CLI", Path: ".gemini/settings.json", Project: true},                              // the same
	{Client: "Cursor", Path: ".cursor/mcp.json"},                                                      // https://cursor.com/docs/context/mcp
	{Client: "Cursor", Path: ".cursor/mcp.json", Project: true},                                       // the same
	{Client: "VS Code", Path: ".config/Code/User/mcp.json"},                                           // https://code.visualstudio.com/docs/copilot/customization/mcp-servers
	{Client: "VS Code", Path: "Library/Application Support/Code/User/mcp.json"},                       // the same
	{Client: "VS Code", Path: ".vscode/mcp.json", Project: true},                                      // the same
	{Client: "Windsurf", Path: ".codeium/windsurf/mcp_config.json"},                                   // https://docs.windsurf.com/windsurf/cascade/mcp
	{Client: "Zed", Path: ".config/zed/settings.json"},                                                // https://zed.dev/docs/ai/mcp
	{Client: "opencode", Path: ".config/opencode/opencode.json"},                                      // https://opencode.ai/docs/mcp-servers
	{Client: "opencode", Path: "opencode.json", Project: true},                                        // the same
}
