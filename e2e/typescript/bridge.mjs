// Calls from stdin (JSON lines) through the official TypeScript SDK's client; answers to stdout.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";

const target = JSON.parse(process.argv[2]);
const headers = target.token ? { Authorization: `Bearer ${target.token}` } : {};
const transport = target.url
  ? target.sse
    ? new SSEClientTransport(new URL(target.url), { requestInit: { headers }, eventSourceInit: { fetch: (u, i) => fetch(u, { ...i, headers: { ...i?.headers, ...headers } }) } })
    : new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers } })
  : new StdioClientTransport({ command: target.command, args: target.args ?? [], env: target.env ?? {}, stderr: "inherit" });

const client = new Client({ name: "pinfold-story-ts", version: "1" });
client.onerror = (e) => process.stderr.write(`client error: ${e?.message ?? e}\n`);
const answer = (o) => process.stdout.write(JSON.stringify(o) + "\n");

const connected = client.connect(transport);
const running = new Set();
for await (const line of createInterface({ input: process.stdin })) {
  const m = JSON.parse(line);
  const work = (async () => {
    await connected;
    if (m.do === "ready") return "ready";
    if (m.do === "tools") return (await client.listTools()).tools.map((t) => t.name);
    return await client.callTool({ name: m.name, arguments: m.arguments }, undefined, { timeout: 120000 });
  })().then((result) => answer({ id: m.id, result }), (e) => answer({ id: m.id, error: String(e?.message ?? e) }));
  running.add(work);
  work.finally(() => running.delete(work));
}
await Promise.allSettled([...running]);
await client.close();
