// The official `openai` package against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import OpenAI from "openai";
import { until } from "./until.mjs";

const { URL: url, KEY: apiKey } = process.env;
const connect = (options = {}) => new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, ...options });
const client = connect();
const ask = (content) => ({ model: "default", messages: [{ role: "user", content }] });
const named = (id = randomUUID()) => ({ headers: { "x-session-id": id } });

/** Reads a stream: its text, its finish reasons, and its last chunk. */
async function read(stream) {
  const found = { text: "", reasons: [], last: undefined };
  for await (const chunk of stream) {
    found.text += chunk.choices[0]?.delta.content ?? "";
    if (chunk.choices[0]?.finish_reason) found.reasons.push(chunk.choices[0].finish_reason);
    found.last = chunk;
  }
  return found;
}

const native = (path, init = {}) =>
  fetch(`${url}${path}`, { ...init, headers: { authorization: `Bearer ${apiKey}`, ...init.headers } });

test("text, whole and as a stream", async () => {
  const whole = await client.chat.completions.create(ask("/say Hello, world"));
  assert.equal(whole.choices[0].message.content, "Hello, world");
  assert.equal(whole.choices[0].finish_reason, "stop");
  assert.ok(whole.usage.total_tokens > 0);
  const stream = await client.chat.completions.create({
    ...ask("/slow 5 40"), stream: true, stream_options: { include_usage: true },
  });
  const { text, reasons, last } = await read(stream);
  assert.equal(text.trim().split(/\s+/).length, 40);
  assert.deepEqual(reasons, ["stop"]);
  assert.ok(last.usage.completion_tokens > 0);
});

test("the accumulator of the package accepts the stream", async () => {
  const runner = client.chat.completions.stream(ask("/say Hello"));
  const completion = await runner.finalChatCompletion();
  assert.equal(completion.choices[0].message.content, "Hello");
});

test("a session remembers, and its transcript is the same natively", async () => {
  const session = named();
  const id = session.headers["x-session-id"];
  await client.chat.completions.create(ask("/say One"), session);
  await client.chat.completions.create(ask("/say Two"), session);
  const { data } = await (await native(`/v1/sessions/${id}/messages`)).json();
  const texts = data.map((message) => message.parts.map((part) => part.text).join(""));
  assert.deepEqual(texts, ["/say One", "One", "/say Two", "Two"]);
});

test("without a session nothing is kept", async () => {
  const before = await (await native("/v1/sessions?limit=200")).json();
  await client.chat.completions.create({
    model: "default",
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "One" },
      { role: "assistant", content: "1" },
      { role: "user", content: "/say Two" },
    ],
  });
  const after = await (await native("/v1/sessions?limit=200")).json();
  const known = new Set(before.data.map((session) => session.id));
  assert.ok(after.data.every((session) => known.has(session.id) || !session.id.startsWith("ses_")));
});

test("the server's tools are invisible", async () => {
  const stream = await client.chat.completions.create({
    ...ask('/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /say Done'), stream: true,
  });
  const { text, reasons } = await read(stream);
  assert.ok(text.endsWith("Done"), text);
  assert.deepEqual(reasons, ["stop"]);
});

test("a tool of the client runs, with and without a session", async () => {
  for (const options of [{}, named()]) {
    const tool = {
      type: "function",
      function: {
        name: "weather",
        description: "Returns the weather.",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      },
    };
    const first = ask('/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}');
    const asked = await client.chat.completions.create({ ...first, tools: [tool] }, options);
    const { message, finish_reason } = asked.choices[0];
    assert.equal(finish_reason, "tool_calls");
    assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments).city), ["Bern", "Rome"]);
    const results = message.tool_calls.map(({ id, function: { arguments: args } }) => (
      { role: "tool", tool_call_id: id, content: `sunny in ${JSON.parse(args).city}` }
    ));
    const messages = [...first.messages, message, ...results];
    const { text } = await read(await client.chat.completions.create(
      { model: "default", messages, tools: [tool], stream: true }, options,
    ));
    assert.match(text, /sunny in Bern/);
    assert.match(text, /sunny in Rome/);
  }
});

test("a stream reports each call of a tool of the client as done", async () => {
  const runner = client.chat.completions.stream({
    ...ask('/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}'),
    tools: [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }],
  });
  const done = [];
  runner.on("tool_calls.function.arguments.done", (call) => done.push([call.index, call.name, JSON.parse(call.arguments)]));
  const completion = await runner.finalChatCompletion();
  assert.deepEqual(done, [[0, "weather", { city: "Bern" }], [1, "weather", { city: "Rome" }]]);
  assert.equal(completion.choices[0].finish_reason, "tool_calls");
  assert.equal(completion.choices[0].message.tool_calls.length, 2);
});

test("a message next to results that the server waits for is refused, and the results count later", async () => {
  const options = named();
  const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
  const first = ask('/tool weather {"city": "Bern"}');
  const { choices: [{ message }] } = await client.chat.completions.create({ ...first, tools }, options);
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" };
  const messages = [...first.messages, message, result];
  const both = [...messages, { role: "user", content: "/say Next" }];
  await assert.rejects(client.chat.completions.create({ model: "default", messages: both, tools }, options), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "messages.3" && /send the results first/.test(error.message));
  const done = await client.chat.completions.create({ model: "default", messages, tools }, options);
  assert.match(done.choices[0].message.content, /sunny/);
  const next = await client.chat.completions.create({ model: "default", messages: both, tools }, options);
  assert.equal(next.choices[0].message.content, "Next");
});

test("a conversation from elsewhere may end with results", async () => {
  const call = { id: "functions.look:0", type: "function", function: { name: "look", arguments: "{}" } };
  const completion = await client.chat.completions.create({
    model: "default",
    messages: [
      { role: "user", content: "Look." },
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: call.id, content: "a tree" },
    ],
  });
  assert.equal(completion.choices[0].finish_reason, "stop");
});

test("runTools calls the functions of the client", async () => {
  const calls = [];
  const runner = client.chat.completions.runTools({
    ...ask('/tool sum {"a": 1, "b": 2}'),
    tools: [{
      type: "function",
      function: {
        name: "sum",
        description: "Adds.",
        parse: JSON.parse,
        function: ({ a, b }) => { calls.push([a, b]); return String(a + b); },
        parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
      },
    }],
  });
  assert.match(await runner.finalContent(), /3/);
  assert.deepEqual(calls, [[1, 2]]);
});

test("structured output", async () => {
  const completion = await client.chat.completions.create({
    ...ask('/say {"city": "Bern"}'),
    response_format: {
      type: "json_schema",
      json_schema: {
        name: "place",
        schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      },
    },
  });
  assert.deepEqual(JSON.parse(completion.choices[0].message.content), { city: "Bern" });
});

test("a file", async () => {
  const content = [
    { type: "text", text: "/say seen" },
    { type: "image_url", image_url: { url: "data:image/png;base64,aGVsbG8=" } },
  ];
  const completion = await client.chat.completions.create({ ...ask(content) });
  assert.equal(completion.choices[0].message.content, "seen");
});

test("approvals of other clients continue the session", async () => {
  const session = named();
  const id = session.headers["x-session-id"];
  await client.chat.completions.create(ask("/say hi"), session);
  await native(`/v1/sessions/${id}`, {
    method: "PATCH", headers: { "content-type": "application/json" },
    body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
  const waiting = await client.chat.completions.create(ask('/tool echo {"text": "a"}'), session);
  assert.match(waiting.choices[0].message.content, /waits for a decision or an answer: echo/);
  const { pending } = await (await native(`/v1/sessions/${id}`)).json();
  const approved = await native(`/v1/sessions/${id}/approvals/${pending[0].call_id}`, {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ decision: "approve" }),
  });
  assert.equal((await approved.json()).status, "completed");
});

test("errors before and after the first byte", async () => {
  await assert.rejects(connect({ apiKey: "wrong" }).chat.completions.create(ask("hi")), OpenAI.AuthenticationError);
  await assert.rejects(client.chat.completions.create({ ...ask("hi"), model: "missing" }), (error) =>
    error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
  await assert.rejects(client.chat.completions.create({ ...ask("hi"), n: 2 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "n");
  await assert.rejects(client.chat.completions.create(ask("x".repeat((1 << 20) + 1))), OpenAI.BadRequestError);
  // The server may close the connection before all of such a body has arrived.
  await assert.rejects(client.chat.completions.create(ask("x".repeat(5 << 20))), (error) =>
    error.status === 413 || error instanceof OpenAI.APIConnectionError);
  // So the next request on this connection may fail.
  await until(() => fetch(`${url}/healthz`).then((response) => response.ok, () => false));
  await assert.rejects(client.chat.completions.create(ask("/fail auth")), OpenAI.InternalServerError);
  const stream = await client.chat.completions.create({ ...ask("/fail auth"), stream: true });
  await assert.rejects(read(stream), OpenAI.APIError);
});

test("a client with its default retries does not repeat a turn that fails", async () => {
  const session = named();
  const retrying = new OpenAI({ baseURL: `${url}/v1`, apiKey });
  await assert.rejects(retrying.chat.completions.create(ask("/fail auth"), session), OpenAI.InternalServerError);
  const { data } = await (await native(`/v1/sessions/${session.headers["x-session-id"]}/messages`)).json();
  assert.equal(data.filter((message) => message.role === "user").length, 1);
});

test("a request that leaves does not end the turn of its session", async () => {
  const session = named();
  const id = session.headers["x-session-id"];
  const abort = new AbortController();
  const stream = await client.chat.completions.create(
    { ...ask("/slow 20 60"), stream: true }, { ...session, signal: abort.signal },
  );
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
  abort.abort();
  await until(async () => (await (await native(`/v1/sessions/${id}`)).json()).status === "idle");
  const { data } = await (await native(`/v1/sessions/${id}/messages`)).json();
  assert.equal(data.at(-1).parts[0].text.trim().split(/\s+/).length, 60);
});

test("models", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.ok(ids.includes("default") && ids.includes("demo/echo"), ids);
  assert.equal((await client.models.retrieve("default")).owned_by, "edge-harness");
});

test("a tool of the server that takes seconds, whole and as a stream", async () => {
  const asks = ask('/tool sleep {"ms": 4000}');
  const [whole, stream] = await Promise.all([
    client.chat.completions.create(asks),
    client.chat.completions.create({ ...asks, stream: true }).then(read),
  ]);
  assert.match(whole.choices[0].message.content, /slept 4000 ms/);
  assert.match(stream.text, /slept 4000 ms/);
  assert.deepEqual(stream.reasons, ["stop"]);
});

test("an abort through the HTTP API ends the stream", async () => {
  const session = named();
  const stream = await client.chat.completions.create({ ...ask("/slow 50 900"), stream: true }, session);
  let aborted;
  const reasons = [];
  for await (const { choices: [choice] } of stream) {
    if (choice.delta.content) {
      aborted ??= native(`/v1/sessions/${session.headers["x-session-id"]}/abort`, { method: "POST" });
    }
    if (choice.finish_reason) reasons.push(choice.finish_reason);
  }
  assert.equal((await (await aborted).json()).aborted, true);
  assert.deepEqual(reasons, ["stop"]);
});

test("an error after text", async () => {
  const stream = await client.chat.completions.create({ ...ask("/fail cut"), stream: true });
  let text = "";
  await assert.rejects(async () => {
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
  }, OpenAI.APIError);
  assert.match(text, /This response/);
});

test("a text of 900 kB is accepted, more than 1 MiB is refused with the reason", async () => {
  const big = await client.chat.completions.create(ask(`/say Seen\n${"x".repeat(900_000)}`));
  assert.equal(big.choices[0].message.content, "Seen");
  await assert.rejects(client.chat.completions.create(ask("x".repeat((1 << 20) + 1))), /1 MiB/);
});
