// Responses of the official `openai` package over a WebSocket, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const { URL: url, KEY: apiKey } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const model = "default";
const ENDS = ["response.completed", "response.incomplete", "response.failed"];
const session = (response) => response.id.slice(response.id.indexOf(".") + 1);
const permit = (id, tools) => fetch(`${url}/v1/sessions/${id}`, {
  method: "PATCH", headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
  body: JSON.stringify({ permissions: { tools } }),
});
const output = (response) => response.output.filter(({ type }) => type === "message").map(({ content }) => content[0].text).join("\n");
const calls = (response, type = "function_call") => response.output.filter((item) => item.type === type);

/** Opens a socket. `respond` sends a request, and returns the response at its end; `onEvent` gets each event. */
function open(t, of = client) {
  const socket = new ResponsesWS(of);
  t.after(() => socket.close());
  const respond = (request, onEvent = () => {}) => new Promise((resolve, reject) => {
    const take = (event) => {
      onEvent(event);
      if (!ENDS.includes(event.type)) return;
      socket.off("event", take);
      resolve(event.response);
    };
    socket.on("event", take);
    socket.on("error", reject);
    socket.send({ type: "response.create", model, ...request });
  });
  return { socket, respond };
}

test("tools of the server: several at once, and one that takes seconds", async (t) => {
  const { respond } = open(t);
  const both = await respond({ input: '/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /say Done' });
  assert.deepEqual([calls(both).length, calls(both, "function_call_output").length, output(both)], [2, 2, "Done"]);
  assert.match(output(await respond({ input: '/tool sleep {"ms": 4000}' })), /slept 4000 ms/);
});

test("an approval and a refusal", async (t) => {
  const { respond } = open(t);
  let last = await respond({ input: "/say hi" });
  await permit(session(last), { echo: "ask" });
  for (const approve of [true, false]) {
    const asked = await respond({ input: '/tool echo {"text": "a"}\n/then /say Done', previous_response_id: last.id });
    const [{ id }] = calls(asked, "mcp_approval_request");
    const decided = { type: "mcp_approval_response", approval_request_id: id, approve };
    last = await respond({ input: [decided], previous_response_id: asked.id });
    assert.equal(output(last), "Done");
  }
});

test("tools of the client, several at once", async (t) => {
  const { respond } = open(t);
  const tools = [{ type: "function", name: "weather", strict: false, parameters: { type: "object", properties: { city: { type: "string" } } } }];
  const asked = await respond({ input: '/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}', tools });
  const results = calls(asked).map((call) => ({
    type: "function_call_output", call_id: call.call_id, output: `sunny in ${JSON.parse(call.arguments).city}`,
  }));
  assert.equal(results.length, 2);
  const done = await respond({ input: results, previous_response_id: asked.id });
  assert.match(output(done), /sunny in Bern[\s\S]*sunny in Rome/);
});

test("a cancellation", async (t) => {
  let id, canceled;
  const response = await open(t).respond({ input: "/slow 50 900" }, (event) => {
    id ??= event.response?.id;
    if (event.type === "response.output_text.delta") canceled ??= client.responses.cancel(id);
  });
  assert.equal((await canceled).status, "cancelled");
  assert.equal(response.status, "cancelled");
});

test("a socket that closes in the middle of the text: the rest follows from a number over HTTP", async (t) => {
  const { socket, respond } = open(t);
  const begun = { text: "" };
  const take = (event) => {
    begun.id ??= event.response?.id;
    begun.last = event.sequence_number;
    if (event.type === "response.output_text.delta") begun.text += event.delta;
  };
  await new Promise((resolve) => {
    respond({ input: "/slow 20 80" }, (event) => {
      if (begun.text.length > 40) return;
      take(event);
      if (begun.text.length > 40) resolve(socket.close());
    }).catch(() => {});
  });
  for await (const event of await client.responses.retrieve(begun.id, { stream: true, starting_after: begun.last })) take(event);
  assert.equal(begun.text.trim().split(/\s+/).length, 80);
});

test("errors before and after the first byte", async (t) => {
  const kinds = [];
  const cut = await open(t).respond({ input: "/fail cut" }, ({ type }) => kinds.push(type));
  assert.ok(kinds.includes("response.output_text.delta"));
  assert.equal(cut.status, "failed");
  assert.equal((await open(t).respond({ input: "/fail auth" })).status, "failed");
  await assert.rejects(open(t).respond({ model: "missing", input: "hi" }), /missing/);
  await assert.rejects(open(t, new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 })).respond({ input: "hi" }));
});

test("a text of 900 kB is accepted, more than 1 MiB is refused with the reason", async (t) => {
  const { respond } = open(t);
  assert.equal(output(await respond({ input: `/say Seen\n${"x".repeat(900_000)}` })), "Seen");
  await assert.rejects(respond({ input: "x".repeat((1 << 20) + 1) }), /1 MiB/);
});
