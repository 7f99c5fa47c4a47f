// The official client of MCP's tasks extension, connected to the real Worker, which URL and KEY name.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const { URL: url, KEY: key } = process.env;
const headers = { authorization: `Bearer ${key}` };
const info = { name: "test", version: "1" };
const protocolVersion = "2026-07-28";

/** Connects the client, which leaves sending of its requests to the application. `form` answers forms. */
export async function connectTasks(form) {
  const clientCapabilities = { elicitation: { form: {} } };
  const client = new Client(info, { versionNegotiation: { mode: { pin: protocolVersion } } });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers } }));
  let requests = 0;
  const rawDispatch = async ({ method, params }, { signal } = {}) => {
    const response = await fetch(`${url}/mcp`, {
      method: "POST", signal, body: JSON.stringify({ jsonrpc: "2.0", id: requests += 1, method, params }),
      headers: {
        ...headers, "content-type": "application/json", accept: "application/json, text/event-stream",
        "mcp-protocol-version": protocolVersion, "mcp-method": method, "mcp-name": params.taskId ?? params.name,
      },
    });
    const { result, error } = await response.json();
    return error ? { kind: "error", error } : { kind: "result", result };
  };
  const tasks = createTaskSessionFromClient(client, {
    endpointId: url, rawDispatch, onInputRequest: ({ params }) => form(params),
    v2RequestFraming: { protocolVersion, clientInfo: info, clientCapabilities },
  });
  return { client, tasks, call: (args) => tasks.callTool("ask_agent", args) };
}
