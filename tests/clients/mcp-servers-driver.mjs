// The client under test of the official conformance suite of MCP: the real Worker, which URL and KEY name. The suite names
// its server in the last argument. The Worker may reach SERVERS only, so this program forwards from there.
import { randomUUID } from "node:crypto";
import { createServer, request } from "node:http";

const { URL: url, KEY: key, SERVERS: servers, MCP_CONFORMANCE_SCENARIO: scenario } = process.env;
const target = new URL(process.argv.at(-1));
const [host, port] = servers.split(":");
const { toolCalls } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");

/** The tools to call in each scenario, unless the suite says it. */
const calls = toolCalls ?? {
  tools_call: [{ name: "add_numbers", arguments: { a: 5, b: 3 } }],
  "http-invalid-tool-headers": [{ name: "valid_tool", arguments: { region: "eu" } }],
  "http-standard-headers": [{ name: "test_headers", arguments: {} }],
}[scenario] ?? [];

const proxy = createServer((asked, response) => {
  const options = { method: asked.method, headers: { ...asked.headers, host: target.host } };
  const path = new URL(target);
  const forwarded = request(path, options, (from) => {
    response.writeHead(from.statusCode, from.headers);
    from.pipe(response);
  });
  forwarded.on("error", () => response.destroy());
  response.on("close", () => forwarded.destroy());
  asked.pipe(forwarded);
});
await new Promise((listening) => proxy.listen(Number(port), host, listening));

const native = async (method, path, body) => {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const response = await fetch(`${url}${path}`, { method, headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await response.text());
};
const agent = `suite-${randomUUID().slice(0, 8)}`;
await native("PUT", `/v1/agents/${agent}`, { model: "demo/echo", mcp_servers: { s: { url: `http://${servers}/` } } });
const content = calls.map(({ name, arguments: args }) => `/tool s__${name} ${JSON.stringify(args)}`).join("\n");
await native("POST", `/v1/sessions/${agent}/messages?agent=${agent}`, { content: content || "Hello" });
process.exit(0);
