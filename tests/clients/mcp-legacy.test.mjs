// What only legacy clients of MCP do, with the official clients against the real Worker, which URL and KEY name: they
// cancel a call with a notification, and continue a response whose connection was lost.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import * as modern from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { until } from "./until.mjs";

const { URL: url, KEY: key } = process.env;
const authorization = `Bearer ${key}`;
const info = { name: "test", version: "1" };
const native = (path, init = {}) => fetch(`${url}${path}`, {
  ...init, headers: { authorization, "content-type": "application/json", ...init.headers },
});
const session = async (id) => (await native(`/v1/sessions/${id}`)).json();
const status = async ({ session, turn }) => (await (await native(`/v1/sessions/${session}/turns/${turn}`)).json()).status;
const text = (result) => result.content[0].text;
const words = (text) => text.trim().split(/\s+/);
const countWords = (text) => words(text).length;
const newSession = () => `s-${randomUUID()}`;

async function connect({ form, fetch, path = "/mcp" } = {}) {
  const client = new Client(info, { capabilities: form ? { elicitation: {} } : {} });
  if (form) client.setRequestHandler(ElicitRequestSchema, ({ params }) => form(params));
  const transport = new StreamableHTTPClientTransport(new URL(`${url}${path}`), {
    fetch, requestInit: { headers: { authorization } },
    reconnectionOptions: {
      initialReconnectionDelay: 100, maxReconnectionDelay: 100, reconnectionDelayGrowFactor: 1, maxRetries: 2,
    },
  });
  await client.connect(transport);
  const call = (args, options = {}, name = "ask_agent") => client.callTool({ name, arguments: args }, undefined, options);
  return { client, call };
}

/** Starts a long call; returns how to cancel it, and its end. */
async function start(call, args, name) {
  const cancel = new AbortController();
  let progress;
  const begun = new Promise((resolve) => progress = resolve);
  const ended = call({ message: '/tool echo {"text": "a"}\n/then /slow 50 900', ...args },
    { signal: cancel.signal, onprogress: progress }, name);
  ended.catch(() => {});
  await begun;
  return { ended, cancel: () => cancel.abort("enough") };
}

/** The statuses of the turns of a session, in the order of their starts. */
async function statuses(id) {
  const events = await native(`/v1/sessions/${id}/events`, { headers: { accept: "application/x-ndjson" } });
  const records = (await events.text()).trim().split("\n").map((line) => JSON.parse(line));
  const started = records.filter(({ type }) => type === "turn.started");
  return Promise.all(started.map(({ turn }) => status({ session: id, turn })));
}

/** Sends the notification that cancels a request of a connection. */
const cancelRequest = (connection, requestId, path = "/mcp") => native(path, {
  method: "POST", headers: { accept: "application/json, text/event-stream", "mcp-session-id": connection },
  body: JSON.stringify({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } }),
});

test("a call that names a session is canceled, and no other turn of the session", async () => {
  const { client, call } = await connect();
  const id = newSession();
  const first = await start(call, { session: id });
  const second = call({ message: "/say Next", session: id });
  const third = new AbortController();
  const removed = call({ message: "/say Never", session: id }, { signal: third.signal });
  removed.catch(() => {});
  await until(async () => (await session(id)).queue?.length === 2);
  third.abort("enough");
  await until(async () => (await session(id)).queue?.length === 1);
  assert.equal((await session(id)).status, "running");
  first.cancel();
  await assert.rejects(first.ended, /enough|abort/i);
  assert.equal(text(await second), "Next");
  assert.deepEqual(await statuses(id), ["canceled", "completed"]);
  await client.close();
});

test("a call of another agent is canceled", async () => {
  const { client, call } = await connect();
  const id = newSession();
  for (const args of [{}, { session: id }]) {
    const first = await call({ message: "/say hi", ...args }, {}, "ask_agent_other");
    const { cancel } = await start(call, args, "ask_agent_other");
    cancel();
    const { session } = first.structuredContent;
    await until(async () => (await statuses(session)).join() === "completed,canceled");
  }
  await client.close();
});

test("a call is canceled twice, and an unknown id cancels nothing", async () => {
  const { client, call } = await connect();
  const { sessionId } = client.transport;
  for (const id of [newSession(), sessionId]) {
    const { ended, cancel } = await start(call, { session: id });
    const requestId = client._requestMessageId - 1;
    for (const unknown of [requestId + 1_000, String(requestId), "none", null]) {
      assert.equal((await cancelRequest(sessionId, unknown)).status, 202);
    }
    assert.equal((await session(id)).status, "running");
    assert.equal((await cancelRequest(sessionId, requestId)).status, 202);
    assert.equal((await cancelRequest(sessionId, requestId)).status, 202);
    cancel();
    await assert.rejects(ended);
    await until(async () => (await session(id)).status === "idle");
    assert.equal(text(await call({ message: "/say Next", session: id })), "Next");
    // The request has ended.
    assert.equal((await cancelRequest(sessionId, requestId)).status, 202);
    assert.deepEqual(await statuses(id), ["canceled", "completed"]);
  }
  await client.close();
});

test("neither another connection nor another user cancels a call", async () => {
  const users = ["ann", "ben"].map((name) => `${name}-${randomUUID()}`);
  const [own, other] = await Promise.all(users.map((user) => connect({ path: `/mcp?user=${user}` })));
  const again = await connect({ path: `/mcp?user=${users[0]}` });
  for (const id of [newSession(), own.client.transport.sessionId]) {
    const { ended, cancel } = await start(own.call, { session: id });
    const requestId = own.client._requestMessageId - 1;
    const { sessionId } = own.client.transport;
    await cancelRequest(other.client.transport.sessionId, requestId, `/mcp?user=${users[1]}`);
    await cancelRequest(again.client.transport.sessionId, requestId, `/mcp?user=${users[0]}`);
    await cancelRequest(sessionId, requestId, `/mcp?user=${users[1]}`);
    assert.equal((await (await native(`/v1/sessions/${id}?user=${users[0]}`)).json()).status, "running");
    cancel();
    await assert.rejects(ended);
    await until(async () => (await session(id)).status === "idle");
  }
  await Promise.all([own, other, again].map(({ client }) => client.close()));
});

/** Loses the responses to calls, and continuations of them, after this many chunks each. Counts the requests. */
function losing(chunks, end) {
  const counts = { posts: 0, resumed: 0 };
  const lossy = async (target, init) => {
    const response = await fetch(target, init);
    const isCall = init.method === "POST" && /"tools\/call"/.test(init.body);
    const isResumed = init.method === "GET" && new Headers(init.headers).has("last-event-id");
    if (!isCall && !isResumed) return response;
    counts[isCall ? "posts" : "resumed"] += 1;
    const left = chunks.shift();
    if (left === undefined) return response;
    const reader = response.body.getReader();
    let read = 0;
    const body = new ReadableStream({
      async pull(controller) {
        const { value, done } = read < left ? await reader.read() : { done: true };
        read += 1;
        if (!done) return controller.enqueue(value);
        await reader.cancel();
        end(controller);
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  return { counts, lossy };
}

const ends = {
  closed: (controller) => controller.close(),
  broken: (controller) => controller.error(new Error("the connection was lost")),
};

for (const [name, end] of Object.entries(ends)) {
  test(`a response whose connection is ${name} continues, and has the result once`, async () => {
    const { counts, lossy } = losing([1, 1, 3, 2], end);
    const { client, call } = await connect({ fetch: lossy });
    const errors = [];
    client.onerror = (error) => errors.push(error.message);
    const seen = [];
    const id = newSession();
    const result = await call({ message: '/tool echo {"text": "a"}\n/then /slow 20 200', session: id },
      { onprogress: (progress) => void seen.push(progress) });
    assert.equal(countWords(text(result)), 200);
    assert.deepEqual(counts, { posts: 1, resumed: 4 });
    assert.deepEqual(await statuses(id), ["completed"]);
    assert.deepEqual(errors.filter((error) => !/connection was lost|disconnected/.test(error)), []);
    // No piece of the text is missing or repeated.
    const pieces = seen.map(({ message }) => message).filter((message) => message.includes("word"));
    assert.deepEqual(words(pieces.join("")), words(text(result)));
    assert.ok(seen.every(({ progress }, index) => index === 0 || progress > seen[index - 1].progress));
    // The connection is as good as before.
    assert.equal(text(await call({ message: "/say Next", session: id })), "Next");
    await client.close();
  });
}

test("a turn that ends while no connection is open gives its result to the next one", async () => {
  let open;
  const { counts, lossy } = losing([1], ends.closed);
  const fetch = async (target, init) => {
    if (init.method === "GET" && new Headers(init.headers).has("last-event-id")) await open;
    return lossy(target, init);
  };
  const { client, call } = await connect({ fetch });
  const id = newSession();
  open = until(async () => (await statuses(id)).join() === "completed");
  assert.equal(countWords(text(await call({ message: "/slow 50 5", session: id }))), 5);
  assert.deepEqual(counts, { posts: 1, resumed: 1 });
  await client.close();
});

test("a form is shown once, although the connection is lost while it is open", async () => {
  const forms = [];
  const { counts, lossy } = losing([2], ends.closed);
  const { client, call } = await connect({
    fetch: lossy,
    form: async ({ message }) => {
      forms.push(message);
      await until(() => counts.resumed === 1);
      return { action: "accept", content: { answer: "Tea" } };
    },
  });
  assert.match(text(await call({ message: '/tool ask_user {"question": "Which?"}' })), /Tea/);
  assert.deepEqual([forms, counts], [["Which?"], { posts: 1, resumed: 1 }]);
  await client.close();
});

test("a call is canceled after its response was continued", async () => {
  const { counts, lossy } = losing([1], ends.closed);
  const { client, call } = await connect({ fetch: lossy });
  const id = newSession();
  const { ended, cancel } = await start(call, { session: id });
  await until(() => counts.resumed === 1);
  cancel();
  await assert.rejects(ended);
  await until(async () => (await statuses(id)).join() === "canceled");
  await client.close();
});

test("client 2.x continues in the legacy era, too", async () => {
  const { counts, lossy } = losing([1], ends.broken);
  const client = new modern.Client(info, { versionNegotiation: { mode: "legacy" } });
  await client.connect(new modern.StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
    fetch: lossy, requestInit: { headers: { authorization } },
  }));
  assert.equal(countWords(text(await client.callTool({ name: "ask_agent", arguments: { message: "/slow 50 40" } }))), 40);
  assert.deepEqual(counts, { posts: 1, resumed: 1 });
  await client.close();
});

test("there is no other stream, and no one else's", async () => {
  const get = (headers, path = "/mcp") => native(path, { headers: { accept: "text/event-stream", ...headers } });
  assert.equal((await get({})).status, 405);
  assert.equal((await get({ "last-event-id": "12" })).status, 400);
  const user = randomUUID();
  let last;
  const { client, call } = await connect({ path: `/mcp?user=${user}` });
  await call({ message: "/say hi" }, { onresumptiontoken: (token) => last = token });
  assert.equal((await get({ "last-event-id": last, "mcp-protocol-version": "2026-07-28" })).status, 405);
  assert.equal((await get({ "last-event-id": last }, `/mcp?user=${randomUUID()}`)).status, 404);
  assert.equal((await get({ "last-event-id": last }, `/mcp?user=${user}`)).status, 200);
  assert.equal((await fetch(`${url}/mcp`, { headers: { "last-event-id": last } })).status, 401);
  await client.close();
});
