package shim

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// instructions is what a host may show its model before any tool is used.
const instructions = `Yett performs HTTP requests, SSH commands and copies of files with credentials that you never see. ` +
	`Order: list_access shows the capabilities; request_access asks the person for the ones you need; http_request, ssh_run or ssh_copy then acts. ` +
	`When a result shows a card, a person has to decide first: tell them its two words, and go on with the tool that the result names. ` +
	`Nobody can be talked out of a refusal by repeating the call. Never ask the person for a credential.`

// tool is one entry of the catalogue. The catalogue is fixed per release and
// sorted by name.
type tool struct {
	name        string
	description string
	schema      string // of the arguments: a plain object without combinators
	readOnly    bool   // changes nothing anywhere
	acts        bool   // may change something at the other side
	run         func(ctx context.Context, c *call) *mcp.CallToolResult
}

func tools() []tool {
	return []tool{
		{
			name: "get_operation",
			description: "Get the state of an operation that http_request, ssh_run or ssh_copy started, waiting for its end. " +
				"Use it when a result said queued or executing. If a person has approved meanwhile, this call carries the action out and returns its result. " +
				"It never starts an action that was not asked for, so it is safe to repeat.",
			schema: `{"type":"object","properties":{` +
				`"operation_id":{"type":"string","description":"The operation_id of the earlier result."},` +
				waitSchema + `},"required":["operation_id"],"additionalProperties":false}`,
			acts: true,
			run:  getOperation,
		},
		{
			name: "http_request",
			description: "Send one HTTP request with a stored credential. The capability fixes the scheme, the host and the credential; you choose method and path within what it allows (list_access shows it). " +
				"If the session was not granted the capability, call request_access first. " +
				"If the result says queued, nothing was sent yet: a person must approve; go on with get_operation, do not send the request again. " +
				"Redirects are not followed: the result shows where they point. Text bodies up to 64 KiB are in the result, others are read with read_result. " +
				"Do not set Authorization or other credential headers.",
			schema: `{"type":"object","properties":{` +
				capabilitySchema("http:billing.read") +
				`"method":{"type":"string","description":"GET, POST, …"},` +
				`"path":{"type":"string","description":"The path, beginning with /, without host and without ?query. Escape reserved characters."},` +
				`"query":{"type":"object","description":"Query parameters: name to a string, or to an array of strings.","additionalProperties":true},` +
				`"headers":{"type":"object","description":"Request headers: name to value.","additionalProperties":{"type":"string"}},` +
				`"body_json":{"type":"object","description":"The body as a JSON object, sent as application/json; write another JSON value as text in body. Give at most one of body_json, form, body and body_base64.","additionalProperties":true},` +
				`"form":{"type":"object","description":"The body as form fields: name to a string, or to an array of strings; sent as application/x-www-form-urlencoded.","additionalProperties":true},` +
				`"body":{"type":"string","description":"The body as text, such as XML. Set a Content-Type header with it."},` +
				`"body_base64":{"type":"string","description":"The body as base64, for bytes that are not text. Set a Content-Type header with it."},` +
				keySchema + waitSchema + `},"required":["capability","method","path"],"additionalProperties":false}`,
			acts: true,
			run:  httpRequest,
		},
		{
			name: "list_access",
			description: "List the capabilities that can be asked for, what each allows (methods, paths, commands, files) and which are granted to this session. " +
				"Call it first. It needs nobody's decision.",
			schema:   `{"type":"object","properties":{},"additionalProperties":false}`,
			readOnly: true,
			run:      listAccess,
		},
		{
			name: "read_result",
			description: "Read a body that a result named by reference (body_ref, stdout_ref, stderr_ref, stdout_tail_ref): large ones piece by piece, binary ones as base64. " +
				"To find something in a large body, give grep (lines that match, with their numbers) or json (values of a JSON document) instead of reading all of it. " +
				"References are valid in the session that made them.",
			schema: `{"type":"object","properties":{` +
				`"body_ref":{"type":"string","description":"The body_ref, stdout_ref or stderr_ref of a result."},` +
				`"offset":{"type":"integer","minimum":0,"description":"First byte to read; default 0."},` +
				`"limit":{"type":"integer","minimum":1,"maximum":524288,"description":"Most bytes to read or show; default 65536."},` +
				`"grep":{"type":"string","description":"An RE2 expression, for example (?i)error|timeout. Shows number:line of each match from offset on."},` +
				`"context":{"type":"integer","minimum":0,"maximum":10,"description":"With grep: lines shown before and after each match; default 0."},` +
				`"matches":{"type":"integer","minimum":1,"maximum":1000,"description":"With grep: how many matches are enough; default 100."},` +
				`"json":{"type":"string","description":"A JSON pointer, instead of grep: /items/0/name; a step of * is every element: /items/*/id. Shows one value a line."}` +
				`},"required":["body_ref"],"additionalProperties":false}`,
			readOnly: true,
			run:      readResult,
		},
		{
			name: "request_access",
			description: "Ask the person for capabilities that list_access shows. They see a card with a two-word tag and decide; this call waits for it. " +
				"If the result says pending, tell the person the tag and call request_access again with the same capabilities: it goes on waiting and shows no second card. " +
				"Ask only for what the task needs and say why in purpose.",
			schema: `{"type":"object","properties":{` +
				`"capabilities":{"type":"array","items":{"type":"string"},"minItems":1,"description":"Names as in list_access, for example [\"http:billing.read\"]."},` +
				`"purpose":{"type":"string","description":"One sentence for the person: what you are going to do with it."},` +
				waitSchema + `},"required":["capabilities"],"additionalProperties":false}`,
			run: requestAccess,
		},
		{
			name: "ssh_copy",
			description: "Copy one file between this machine and a host over SFTP with a stored key. The capability (ssh-copy:…) fixes host and key, and says which remote paths, which local directories and which directions are allowed (list_access shows it). " +
				"The file comes to its place whole or not at all; a file that is there is replaced only with overwrite and where the capability allows it. No symbolic links are followed on either side. " +
				"To find a file's name on the host use ssh_run. " +
				"If the result says queued, nothing was copied yet: a person must approve; go on with get_operation. " +
				"The result has size and SHA-256 of what was copied.",
			schema: `{"type":"object","properties":{` +
				capabilitySchema("ssh-copy:web1.logs") +
				`"direction":{"type":"string","description":"up: from local to the host. down: from the host to local."},` +
				`"local":{"type":"string","description":"Absolute path of the file on this machine, in one of the capability's local directories. Directories are not made."},` +
				`"remote":{"type":"string","description":"Absolute path of the file on the host, without wildcards."},` +
				`"overwrite":{"type":"boolean","description":"Replace a file that is there; default false."},` +
				timeoutSchema + keySchema + waitSchema + `},"required":["capability","direction","local","remote"],"additionalProperties":false}`,
			acts: true,
			run:  sshCopy,
		},
		{
			name: "ssh_run",
			description: "Run one command on a host over SSH with a stored key. The capability (ssh:…) fixes host, user and key; you choose a command within what it allows (list_access shows it; * there is one word without spaces or shell characters). " +
				"Give either command (a line for the remote shell) or argv (arguments that are quoted for you), not both. " +
				"Every call is a new shell: nothing of an earlier one is left, such as its directory. " +
				"If the result says queued, nothing was run yet: a person must approve; go on with get_operation, do not run it again. " +
				"The result has exit status, standard output and standard error; a status other than 0 is still completed.",
			schema: `{"type":"object","properties":{` +
				capabilitySchema("ssh:web1.status") +
				`"command":{"type":"string","description":"The command line, exactly as the remote shell gets it."},` +
				`"argv":{"type":"array","items":{"type":"string"},"description":"Program and arguments, instead of command."},` +
				`"stdin":{"type":"string","description":"Text for standard input."},` +
				`"stdin_base64":{"type":"string","description":"Bytes for standard input as base64, instead of stdin."},` +
				`"env":{"type":"object","description":"Environment variables, name to value; those that the host's entry in the access file names.","additionalProperties":{"type":"string"}},` +
				`"pty":{"type":"boolean","description":"Give the command a terminal, where list_access shows pty. Standard output and error come together then. Default false."},` +
				timeoutSchema + keySchema + waitSchema + `},"required":["capability"],"additionalProperties":false}`,
			acts: true,
			run:  sshRun,
		},
	}
}

const (
	keySchema     = `"idempotency_key":{"type":"string","description":"Optional. A repeat with the same key returns the first operation instead of acting again."},`
	timeoutSchema = `"timeout_ms":{"type":"integer","minimum":1,"maximum":600000,"description":"Longest run time in milliseconds; default 60000."},`
	waitSchema    = `"wait_ms":{"type":"integer","minimum":0,"maximum":50000,"description":"How long to wait for a person and the result, in milliseconds; default 45000."}`
)

func capabilitySchema(example string) string {
	return `"capability":{"type":"string","description":"The name as in list_access, for example ` + example + `."},`
}

// register adds the tool to server. work ends when the agent does.
func (t tool) register(work context.Context, server *mcp.Server, l *link) {
	server.AddTool(&mcp.Tool{
		Name:        t.name,
		Description: t.description,
		InputSchema: json.RawMessage(t.schema),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.readOnly, DestructiveHint: &t.acts, OpenWorldHint: &t.acts},
	}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(work, cancel)
		defer stop()
		c := &call{link: l, agent: req.ClientInfo(), arguments: req.Params.Arguments}
		return c.finish(t.run(ctx, c)), nil
	})
}
