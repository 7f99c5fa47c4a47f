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
  for (const type of [...types, "turn.completed", "turn.failed", "turn.canceled"]) {
    source.addEventListener(type, ({ lastEventId, data }) => {
      events.push({ ...JSON.parse(data), type, id: lastEventId });
      if (!type.startsWith("turn.") || type === "turn.started") return;
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
