// The `eventsource` package, which behaves like that of browsers, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { cuttingProxy } from "../../clients/ts/test/proxy.mjs";

const { URL: url, KEY: key } = process.env;
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
const native = async (path, body) => {
  const method = body ? "POST" : "GET";
  return (await fetch(`${url}${path}`, { method, headers, body: body && JSON.stringify(body) })).json();
};

/** Opens the events of a session, with the key in a header. */
const open = (origin, id, query = "", credential = key) => new EventSource(`${origin}/v1/sessions/${id}/events${query}`, {
  fetch: (input, init) => fetch(input, {
    ...init, headers: { ...init.headers, authorization: `Bearer ${credential}` },
  }),
});

/** Collects events of these types until one ends the turn. */
const collect = (source, types) => new Promise((resolve, reject) => {
  const events = [];
  const ends = ["turn.completed", "turn.failed", "turn.canceled"];
  for (const type of [...types, ...ends]) {
    source.addEventListener(type, ({ lastEventId, data }) => {
      events.push({ ...JSON.parse(data), type, id: lastEventId });
      if (!ends.includes(type)) return;
      source.close();
      resolve(events);
    });
  }
  source.addEventListener("error", (event) => {
    if (source.readyState === source.CLOSED) reject(new Error(`closed: ${event.code}`));
  });
});

const text = (events) => events.filter(({ type }) => type === "message.delta").map(({ delta }) => delta).join("");

test("text and tools, also when the connection is cut again and again", async (t) => {
  const id = randomUUID();
  await native("/v1/sessions", { id });
  const proxy = await cuttingProxy(t, url, [2_000, 3_000, 1_500]);
  const source = open(proxy.url, id, "?after=0");
  const found = collect(source, ["turn.started", "tool.started", "tool.completed", "message.delta"]);
  await native(`/v1/sessions/${id}/messages`, {
    content: '/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /slow 15 120',
  });
  const events = await found;
  assert.ok(proxy.cuts > 0);
  const ids = events.map((event) => event.id);
  assert.equal(new Set(ids).size, ids.length, "no event twice");
  assert.equal(events.filter(({ type }) => type === "tool.completed").length, 2);
  const { turn } = events.at(-1);
  assert.equal(text(events), (await native(`/v1/sessions/${id}/turns/${turn}`)).reply.text);
});

test("a ticket in place of a header, and a wrong key", async () => {
  const id = randomUUID();
  await native("/v1/sessions", { id });
  const { ticket } = await native("/v1/tickets", { session: id });
  const source = new EventSource(`${url}/v1/sessions/${id}/events?ticket=${encodeURIComponent(ticket)}`);
  const found = collect(source, ["message.delta"]);
  await new Promise((resolve) => source.addEventListener("open", resolve));
  await native(`/v1/sessions/${id}/messages`, { content: "/say Hello" });
  assert.equal(text(await found), "Hello");
  const wrong = open(url, id, "", "wrong");
  const { code } = await new Promise((resolve) => wrong.addEventListener("error", resolve));
  wrong.close();
  assert.equal(code, 401);
});

/** Opens a new session, whose events of these types are collected until a turn ends. */
async function follow(types, session = {}) {
  const { id } = await native("/v1/sessions", session);
  return { id, events: collect(open(url, id, "?after=0"), types) };
}

test("a call waits for approval or a refusal, and the same stream has the rest of the turn", async () => {
  for (const [decision, outcome] of [["approve", "result"], ["decline", "denied"]]) {
    const { id, events } = await follow(["turn.waiting", "approval.decided", "tool.completed"],
      { permissions: { tools: { echo: "ask" } } });
    const { pending: [call] } = await native(`/v1/sessions/${id}/messages`, { content: '/tool echo {"text": "a"}' });
    await native(`/v1/sessions/${id}/approvals/${call.call_id}`, { decision });
    const found = await events;
    assert.deepEqual(found.map(({ type }) => type), ["turn.waiting", "approval.decided", "tool.completed", "turn.completed"]);
    assert.deepEqual([found[1].decision, found[2].outcome], [decision, outcome]);
  }
});

test("a tool of the client waits for its result, and the same stream has the rest of the turn", async () => {
  const { id, events } = await follow(["turn.waiting", "tool.completed", "message.delta"]);
  const client_tools = [{ name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } }];
  const { pending: [call] } = await native(`/v1/sessions/${id}/messages`, {
    content: '/tool weather {"city": "Bern"}', client_tools,
  });
  await native(`/v1/sessions/${id}/answers/${call.call_id}`, { answer: `sunny in ${call.args.city}` });
  const found = await events;
  const [waiting, completed] = found;
  assert.deepEqual([waiting.type, waiting.pending[0].kind], ["turn.waiting", "external"]);
  assert.deepEqual([completed.type, completed.outcome], ["tool.completed", "result"]);
  assert.match(text(found), /sunny in Bern/);
});

test("a tool that takes seconds", async () => {
  const { id, events } = await follow(["tool.completed", "message.delta"]);
  await native(`/v1/sessions/${id}/messages`, { content: '/tool sleep {"ms": 4000}' });
  const found = await events;
  assert.equal(found.find(({ type }) => type === "tool.completed").outcome, "result");
  assert.match(text(found), /slept 4000 ms/);
});

test("an abort, and an error after text", async () => {
  const aborted = await follow(["message.delta"]);
  native(`/v1/sessions/${aborted.id}/messages`, { content: "/slow 20 900" });
  while (!(await native(`/v1/sessions/${aborted.id}/abort`, {})).aborted) continue;
  assert.equal((await aborted.events).at(-1).type, "turn.canceled");
  const failed = await follow(["message.delta"]);
  native(`/v1/sessions/${failed.id}/messages`, { content: "/fail cut" });
  const events = await failed.events;
  assert.equal(events.at(-1).type, "turn.failed");
  assert.match(text(events), /This response/);
});

test("an agent, a model and a session that do not exist", async () => {
  assert.equal((await native("/v1/sessions", { agent: "missing" })).code, "unknown_agent");
  assert.equal((await native("/v1/sessions", { model: "missing/model" })).status, 422);
  const source = open(url, randomUUID());
  const { code } = await new Promise((resolve) => source.addEventListener("error", resolve));
  source.close();
  assert.equal(code, 404);
});

test("a message of 900 kB is one event, more than 1 MiB is refused with the reason", async () => {
  const { id, events } = await follow(["turn.started"]);
  const content = `/say Seen\n${"x".repeat(900_000)}`;
  await native(`/v1/sessions/${id}/messages`, { content });
  const [{ message }, { reply }] = await events;
  assert.equal(message.parts[0].text, content);
  assert.equal(reply.text, "Seen");
  const refused = await native(`/v1/sessions/${id}/messages`, { content: "x".repeat((1 << 20) + 1) });
  assert.match(refused.detail, /1 MiB/);
});
