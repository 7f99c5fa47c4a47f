// Version 1.x of the SDK of MCP: asks the default agent.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const client = new Client({ name: "my-host", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
  requestInit: { headers: { authorization: `Bearer ${key}` } },
}));
const result = await client.callTool({ name: "ask_agent", arguments: { message: "Hello" } }, undefined, {
  // Without both, the client cancels a call after a minute, and the turn with it.
  onprogress: ({ message }) => console.log(message),
  resetTimeoutOnProgress: true,
});
console.log(result.content[0].text);
await client.close();
