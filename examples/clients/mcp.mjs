// The client of MCP: asks the default agent.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const client = new Client({ name: "my-host", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
  requestInit: { headers: { authorization: `Bearer ${key}` } },
}));
const result = await client.callTool({ name: "ask_agent", arguments: { message: "Hello" } }, {
  // Without both, the client cancels a call after a minute, and the turn with it.
  onprogress: ({ message }) => console.log(message),
  resetTimeoutOnProgress: true,
});
console.log(result.content[0].text);
await client.close();
