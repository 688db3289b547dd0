// Plays steps through Signalbox's MCP server with the official TypeScript SDK, of either major version.
// Standard input has the address, the binary, the key of each role, the steps, and where the SDK is installed. The
// coordinator and the reviewer speak over HTTP, the others over standard input and output.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

let input = "";
for await (const chunk of process.stdin) input += chunk;
const plan = JSON.parse(input);
const require = createRequire(plan.modules + "/x.js");
const load = (name) => import(pathToFileURL(require.resolve(name)));
let sdk, stdio;
if (plan.major === 1) {
  const [client, http, pipe] = await Promise.all(["index", "streamableHttp", "stdio"].map(
    (name) => load("@modelcontextprotocol/sdk/client/" + name + ".js")));
  sdk = { ...client, ...http };
  stdio = pipe;
} else {
  [sdk, stdio] = await Promise.all([load("@modelcontextprotocol/client"), load("@modelcontextprotocol/client/stdio")]);
}

const clients = {};
for (const [role, key] of Object.entries(plan.keys)) {
  const client = new sdk.Client({ name: "test", version: "1" });
  const to = ["coordinator", "reviewer"].includes(role)
    ? new sdk.StreamableHTTPClientTransport(new URL(plan.url + "/mcp"),
      { requestInit: { headers: { Authorization: "Bearer " + key } } })
    : new stdio.StdioClientTransport({ command: plan.binary, args: ["mcp", "--server", plan.url, "--key", key] });
  await client.connect(to);
  clients[role] = client;
}
const offered = {};
for (const [role, client] of Object.entries(clients)) {
  offered[role] = (await client.listTools()).tools.map((tool) => tool.name);
}
const results = [];
let last = "";
for (const step of plan.steps) {
  const text = JSON.stringify(step.args ?? {}).replaceAll("$msg", last);
  const result = await clients[step.role].callTool({ name: step.tool, arguments: JSON.parse(text) });
  const data = result.structuredContent ?? {};
  for (const message of data.messages ?? []) last = message.msg_id ?? message.id;
  results.push({
    tool: step.tool, failed: !!result.isError, structured: Object.keys(data).length > 0, text: result.content[0].text,
  });
}
await Promise.all(Object.values(clients).map((client) => client.close()));
console.log(JSON.stringify({ offered, results }));
