// An agent's host in Node: the client of the TypeScript SDK starts yett-mcp and
// does what the test says, a JSON object a line on standard input, an answer a
// line on standard output:
//
//   {"id":1,"do":"list"}  {"id":2,"do":"call","name":"…","arguments":{…}}  {"id":3,"do":"ping"}
//   {"id":4,"do":"close"}
//
// Usage: node client.mjs COMMAND [ARGUMENT...]
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [command, ...args] = process.argv.slice(2);
const say = (o) => process.stdout.write(JSON.stringify(o) + '\n');

const env = process.env.GORACE ? { GORACE: process.env.GORACE } : {}; // the SDK passes on little
const transport = new StdioClientTransport({ command, args, env, stderr: 'inherit' });
const client = new Client({ name: 'node-agent', version: '1' }, { capabilities: { elicitation: {} } });
let elicited = 0;
client.setRequestHandler(ElicitRequestSchema, async () => {
  elicited++;
  return { action: 'accept', content: {} };
});
client.onerror = (e) => say({ event: 'error', message: String(e) });
await client.connect(transport);
client.onclose = () => say({ event: 'closed' });
say({ event: 'connected', pid: transport.pid, server: client.getServerVersion() });

const work = {
  list: () => client.listTools(),
  ping: () => client.ping(),
  call: (r) => client.callTool({ name: r.name, arguments: r.arguments }),
  close: () => client.close(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  work[request.do](request).then(
    (result) => say({ id: request.id, result: result ?? {}, elicited }),
    (error) => say({ id: request.id, error: String(error), elicited }),
  );
}
