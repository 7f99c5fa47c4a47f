// The Responses of the official `openai` package against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
import { cuttingProxy } from "../../clients/ts/test/proxy.mjs";

const { URL: url, KEY: apiKey } = process.env;
const connect = (options = {}) => new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, ...options });
const client = connect();
const model = "default";
const native = (path, init = {}) =>
  fetch(`${url}${path}`, { ...init, headers: { authorization: `Bearer ${apiKey}`, ...init.headers } });
const session = (response) => response.id.slice(response.id.indexOf(".") + 1);
const weather = {
  type: "function", name: "weather", description: "Returns the weather.", strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

test("text, and what follows it", async () => {
  const first = await client.responses.create({ model, input: "/say Hello" });
  assert.equal(first.output_text, "Hello");
  const second = await client.responses.create({ model, input: "/say Again", previous_response_id: first.id });
  assert.equal(second.output_text, "Again");
  assert.equal(session(first), session(second));
  assert.equal((await client.responses.retrieve(first.id)).output_text, "Hello");
  const { data } = await client.responses.inputItems.list(second.id);
  assert.equal(data[0].content[0].text, "/say Again");
  const { data: messages } = await (await native(`/v1/sessions/${session(first)}/messages`)).json();
  assert.equal(messages.length, 4);
});

test("a stream, which the accumulator of the package accepts", async () => {
  const numbers = [];
  let text = "";
  const stream = client.responses.stream({ model, input: "/slow 5 40" });
  for await (const event of stream) {
    numbers.push(event.sequence_number);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.deepEqual(numbers, numbers.map((_, index) => index));
  const response = await stream.finalResponse();
  assert.equal(response.output_text, text);
  assert.equal(response.status, "completed");
});

test("tools of the server, several at once", async () => {
  const stream = client.responses.stream({
    model, input: '/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /say Done',
  });
  const response = await stream.finalResponse();
  const kinds = response.output.map((item) => item.type);
  assert.deepEqual(kinds.slice(0, 4).sort(), [
    "function_call", "function_call", "function_call_output", "function_call_output",
  ]);
  assert.ok(response.output_text.endsWith("Done"));
});

test("a tool of the client, stored and not", async () => {
  const input = [{ role: "user", content: '/tool weather {"city": "Bern"}' }];
  const first = await client.responses.create({ model, input, tools: [weather] });
  const call = first.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Bern" });
  const result = (id) => ({ type: "function_call_output", call_id: id, output: "sunny" });
  const second = await client.responses.create({ model, input: [result(call.call_id)], previous_response_id: first.id });
  assert.match(second.output_text, /sunny/);

  const alone = await client.responses.create({ model, input, tools: [weather], store: false });
  const again = alone.output.find((item) => item.type === "function_call");
  const rest = await client.responses.create({
    model, input: [...input, again, result(again.call_id)], tools: [weather], store: false,
  });
  assert.match(rest.output_text, /sunny/);
});

test("the results of the client are not output, and next to a message they are refused", async () => {
  const first = await client.responses.create({ model, input: '/tool weather {"city": "Bern"}', tools: [weather] });
  const { call_id } = first.output.find((item) => item.type === "function_call");
  const result = { type: "function_call_output", call_id, output: "sunny" };
  const message = { role: "user", content: "/say Next" };
  for (const [input, param] of [[[result, message], "input.1"], [[message, result], "input.0"]]) {
    await assert.rejects(client.responses.create({ model, input, previous_response_id: first.id }), (error) =>
      error instanceof OpenAI.BadRequestError && error.param === param);
  }
  const second = await client.responses.create({ model, input: [result], previous_response_id: first.id });
  assert.deepEqual(second.output.map((item) => item.type), ["message"]);
  assert.deepEqual((await client.responses.retrieve(second.id)).output, second.output);
});

test("each decision on one of several calls has a response with its own id", async () => {
  const input = '/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}';
  const first = await client.responses.create({ model, input, tools: [weather] });
  const ids = first.output.map((item) => item.call_id);
  const give = (call_id, previous_response_id) => client.responses.create({
    model, previous_response_id, input: [{ type: "function_call_output", call_id, output: "sunny" }],
  });
  const second = await give(ids[0], first.id);
  assert.deepEqual(second.output.map((item) => item.call_id), [ids[1]]);
  const third = await give(ids[1], second.id);
  assert.match(third.output_text, /sunny/);
  assert.equal(new Set([first.id, second.id, third.id]).size, 3);
  for (const response of [second, third]) {
    assert.deepEqual((await client.responses.retrieve(response.id)).output, response.output);
  }
});

test("a message to a busy conversation has an id at once", async () => {
  const running = await client.responses.create({ model, input: "/slow 50 900", background: true });
  const stream = await client.responses.create({ model, input: "/say Later", conversation: session(running), stream: true });
  let created;
  const kinds = [];
  for await (const event of stream) {
    kinds.push(event.type);
    if (event.type !== "response.created") continue;
    created = event.response;
    await client.responses.cancel(running.id);
  }
  assert.equal(created.status, "queued");
  assert.deepEqual([kinds[0], kinds[1], kinds.at(-1)], ["response.created", "response.in_progress", "response.completed"]);
  assert.equal((await client.responses.retrieve(created.id)).output_text, "Later");
});

test("an approval and a refusal", async () => {
  let last = await client.responses.create({ model, input: "/say hi" });
  await native(`/v1/sessions/${session(last)}`, {
    method: "PATCH", headers: { "content-type": "application/json" },
    body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
  for (const approve of [true, false]) {
    const asked = await client.responses.create({
      model, input: `/tool echo {"text": "ran"}${approve ? "" : "\n/then /say Fine"}`, previous_response_id: last.id,
    });
    const request = asked.output.find((item) => item.type === "mcp_approval_request");
    last = await client.responses.create({
      model, previous_response_id: asked.id,
      input: [{ type: "mcp_approval_response", approval_request_id: request.id, approve }],
    });
    assert.match(last.output_text, approve ? /ran/ : /^Fine$/);
  }
});

test("in the background: follow from a number, cancel", async () => {
  const begun = await client.responses.create({ model, input: "/slow 20 60", background: true });
  assert.equal(begun.status, "in_progress");
  const numbers = [];
  const stream = await client.responses.retrieve(begun.id, { stream: true, starting_after: 4 });
  for await (const event of stream) numbers.push(event.sequence_number);
  assert.deepEqual(numbers, numbers.map((_, index) => index + 5));
  const resumed = client.responses.stream({ response_id: begun.id, starting_after: 4 });
  assert.equal((await resumed.finalResponse()).output_text.trim().split(/\s+/).length, 60);
  const long = await client.responses.create({ model, input: "/slow 100 900", background: true });
  const canceled = await client.responses.cancel(long.id);
  assert.equal(canceled.status, "cancelled");
});

test("structured output", async () => {
  const schema = {
    type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false,
  };
  const response = await client.responses.parse({
    model, input: '/say {"city": "Bern"}', text: { format: { type: "json_schema", name: "place", schema } },
  });
  assert.deepEqual(response.output_parsed, { city: "Bern" });
});

test("errors before and after the first byte", async () => {
  const rejects = (promise, check) => assert.rejects(promise, check);
  await rejects(connect({ apiKey: "wrong" }).responses.create({ model, input: "x" }), OpenAI.AuthenticationError);
  await rejects(client.responses.create({ model: "missing", input: "x" }), OpenAI.NotFoundError);
  await rejects(client.responses.retrieve("resp_none"), OpenAI.NotFoundError);
  await rejects(client.responses.create({ model, input: [] }), OpenAI.BadRequestError);
  await rejects(client.responses.create({ model, input: "x", background: true, store: false }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "background");
  const failed = await client.responses.create({ model, input: "/fail auth" });
  assert.equal(failed.status, "failed");
  const stream = await client.responses.create({ model, input: "/fail auth", stream: true });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  assert.equal(kinds.at(-1), "response.failed");
});

test("deleting", async () => {
  const only = await client.responses.create({ model, input: "/say hi" });
  await client.responses.delete(only.id);
  await assert.rejects(client.responses.retrieve(only.id), OpenAI.NotFoundError);
});

test("a WebSocket: one response after another, and errors", async (t) => {
  const socket = new ResponsesWS(client);
  t.after(() => socket.close());
  const events = [];
  let arrived;
  socket.on("event", (event) => {
    events.push(event);
    arrived?.();
  });
  const ended = (count) => new Promise((resolve) => {
    arrived = () => events.filter(({ type }) => type === "response.completed").length === count && resolve();
  });
  const first = ended(1);
  socket.send({ type: "response.create", model, input: "/slow 5 20" });
  await first;
  const { response } = events.at(-1);
  assert.equal(response.output[0].content[0].text.trim().split(/\s+/).length, 20);
  const second = ended(2);
  socket.send({ type: "response.create", model, input: "/say Again", previous_response_id: response.id });
  await second;
  assert.equal(session(events.at(-1).response), session(response));
  const refused = new Promise((resolve) => socket.on("error", resolve));
  socket.send({ type: "response.create", model: "missing", input: "hi" });
  assert.match(String((await refused).message), /missing/);
});

test("a long response over a WebSocket is whole", async (t) => {
  const socket = new ResponsesWS(client);
  t.after(() => socket.close());
  const words = "word ".repeat(20_000).trim();
  let text = "";
  const numbers = [];
  await new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("event", (event) => {
      numbers.push(event.sequence_number);
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.completed") resolve();
    });
    socket.send({ type: "response.create", model, input: `/say ${words}` });
  });
  assert.equal(text, words);
  assert.deepEqual(numbers, numbers.map((_, index) => index));
});

test("several calls of tools of the client at once", async () => {
  const input = '/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}';
  const first = await client.responses.create({ model, input, tools: [weather] });
  const calls = first.output.filter((item) => item.type === "function_call");
  assert.deepEqual(calls.map((call) => JSON.parse(call.arguments).city), ["Bern", "Rome"]);
  const results = calls.map(({ call_id, arguments: args }) => (
    { type: "function_call_output", call_id, output: `sunny in ${JSON.parse(args).city}` }
  ));
  const second = await client.responses.create({ model, input: results, previous_response_id: first.id });
  assert.match(second.output_text, /sunny in Bern[\s\S]*sunny in Rome/);
});

test("a tool of the server that takes seconds", async () => {
  const stream = client.responses.stream({ model, input: '/tool sleep {"ms": 4000}' });
  const { output } = await stream.finalResponse();
  assert.match(output.find((item) => item.type === "function_call_output").output, /slept 4000 ms/);
});

test("a cut connection in the middle of the text: the rest follows from a number", async (t) => {
  const proxy = await cuttingProxy(t, url, [4_000]);
  const begun = { id: undefined, last: undefined, text: "" };
  const follow = async (stream) => {
    for await (const event of stream) {
      begun.id ??= event.response?.id;
      if (begun.last !== undefined) assert.equal(event.sequence_number, begun.last + 1);
      begun.last = event.sequence_number;
      if (event.type === "response.output_text.delta") begun.text += event.delta;
    }
  };
  const cut = connect({ baseURL: `${proxy.url}/v1` });
  await assert.rejects(async () => follow(await cut.responses.create({ model, input: "/slow 20 80", stream: true })));
  assert.ok(proxy.cuts === 1 && begun.text);
  await follow(await client.responses.retrieve(begun.id, { stream: true, starting_after: begun.last }));
  assert.equal(begun.text.trim().split(/\s+/).length, 80);
});

test("a cancellation ends the stream", async () => {
  const stream = await client.responses.create({ model, input: "/slow 50 900", stream: true });
  let id, canceled, last;
  for await (const event of stream) {
    id ??= event.response?.id;
    if (event.type === "response.output_text.delta") canceled ??= client.responses.cancel(id);
    last = event;
  }
  assert.equal((await canceled).status, "cancelled");
  assert.deepEqual([last.type, last.response.status], ["response.incomplete", "cancelled"]);
});

test("an error after text", async () => {
  const stream = await client.responses.create({ model, input: "/fail cut", stream: true });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  assert.ok(kinds.includes("response.output_text.delta"));
  assert.equal(kinds.at(-1), "response.failed");
});

test("a text of 900 kB is accepted, more than 1 MiB is refused with the reason", async () => {
  const big = await client.responses.create({ model, input: `/say Seen\n${"x".repeat(900_000)}` });
  assert.equal(big.output_text, "Seen");
  await assert.rejects(client.responses.create({ model, input: "x".repeat((1 << 20) + 1) }), (error) =>
    error instanceof OpenAI.BadRequestError && /1 MiB/.test(error.message));
});
