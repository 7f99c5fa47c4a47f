// What only legacy clients of MCP do, with the official clients against the real Worker, which URL and KEY name: they
// cancel a call with a notification.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { URL: url, KEY: key } = process.env;
const authorization = `Bearer ${key}`;
const info = { name: "test", version: "1" };
const native = (path, init = {}) => fetch(`${url}${path}`, {
  ...init, headers: { authorization, "content-type": "application/json", ...init.headers },
});
const session = async (id) => (await native(`/v1/sessions/${id}`)).json();
const status = async ({ session, turn }) => (await (await native(`/v1/sessions/${session}/turns/${turn}`)).json()).status;
const text = (result) => result.content[0].text;
const newSession = () => `s-${randomUUID()}`;

async function connect({ path = "/mcp" } = {}) {
  const client = new Client(info);
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}${path}`), {
    requestInit: { headers: { authorization } },
  }));
  const call = (args, options = {}, name = "ask_agent") => client.callTool({ name, arguments: args }, undefined, options);
  return { client, call };
}

/** Waits until `find` returns something. */
async function until(find) {
  for (const end = Date.now() + 20_000; Date.now() < end;) {
    const found = await find();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("it did not happen");
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
