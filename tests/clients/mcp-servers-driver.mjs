// The client under test of the official conformance suite of MCP: the real Worker, which URL and KEY name. The suite names
// its server in the last argument. This program is the user, who gives consent and answers questions.
import { randomUUID } from "node:crypto";
import { native } from "./native.mjs";

const { URL: url, MCP_CONFORMANCE_SCENARIO: scenario } = process.env;
const { toolCalls, client_id, client_secret } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const needsConsent = scenario.startsWith("auth/");

/** The tools to call in each scenario, unless the suite says it. */
const calls = toolCalls ?? (needsConsent ? [{ name: "test-tool", arguments: {} }] : {
  tools_call: [{ name: "add_numbers", arguments: { a: 5, b: 3 } }],
  "http-invalid-tool-headers": [{ name: "valid_tool", arguments: { region: "eu" } }],
  "http-standard-headers": [{ name: "test_headers", arguments: {} }],
  "sep-2322-client-request-state": [
    "test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type",
  ].map((name) => ({ name, arguments: {} })),
}[scenario] ?? []);

const name = `suite-${randomUUID().slice(0, 8)}`;
const oauth = { auth: "oauth" };
if (client_id) {
  await native("PUT", "/v1/secrets/SUITE", { value: client_secret });
  const { origin } = new URL(process.argv.at(-1));
  const metadata = await (await fetch(`${origin}/.well-known/oauth-protected-resource/mcp`)).json();
  oauth.oauth_client = { id: client_id, secret: "SUITE", issuer: metadata.authorization_servers[0] };
}
const server = { url: process.argv.at(-1), ...(needsConsent ? oauth : {}) };
await native("PUT", `/v1/agents/${name}`, { model: "demo/echo", mcp_servers: { s: server } });

const answer = (call_id, given) => native("POST", `/v1/sessions/${name}/answers/${call_id}`, { answer: given });

/** Does what a call that waits asks the user for. */
async function act({ kind, call_id, payload }) {
  if (kind === "auth") {
    const { headers } = await fetch(payload.url, { redirect: "manual" });
    const { search } = new URL(headers.get("location"));
    const page = await (await fetch(`${url}/v1/oauth/callback${search}`)).text();
    const code = page.match(/^Your code is (\S+)/)?.[1];
    return answer(call_id, code ? { code } : { action: "decline" });
  }
  const fields = Object.keys(payload.schema.properties).map((field) => [field, true]);
  return answer(call_id, { action: "accept", content: Object.fromEntries(fields) });
}

async function say(content) {
  await native("POST", `/v1/sessions/${name}/messages?agent=${name}`, { content });
  for (;;) {
    const { status, pending } = await native("GET", `/v1/sessions/${name}`);
    if (status === "idle") return;
    if (pending[0]) await act(pending[0]);
    else await new Promise((soon) => setTimeout(soon, 50));
  }
}

if (needsConsent) await say("/tool s__connect {}");
await say(calls.map(({ name: tool, arguments: args }) => `/tool s__${tool} ${JSON.stringify(args)}`).join("\n") || "Hello");
process.exit(0);
