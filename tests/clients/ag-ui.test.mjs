// The official `@ag-ui/client` package against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { HttpAgent } from "@ag-ui/client";

const { URL: url, KEY: key } = process.env;
const headers = { authorization: `Bearer ${key}` };
const native = (path, init = {}) => fetch(`${url}${path}`, {
  ...init, headers: { ...headers, "content-type": "application/json", ...init.headers },
});
const agent = (options = {}) => new HttpAgent({ url: `${url}/ag-ui`, headers, threadId: randomUUID(), ...options });

/** Sends a message, and returns the events of the run. */
async function say(own, content, parameters = {}) {
  if (content) own.addMessage({ id: randomUUID(), role: "user", content });
  const events = [];
  await own.runAgent(parameters, { onEvent: ({ event }) => void events.push(event) });
  return events;
}

const text = (message) => message.content ?? "";
const last = (own) => own.messages.at(-1);
const kinds = (events) => events.map((event) => event.type);

test("text, and a second message", async () => {
  const own = agent();
  await say(own, "/say Hello");
  await say(own, "/say Again");
  assert.deepEqual(own.messages.map(text), ["/say Hello", "Hello", "/say Again", "Again"]);
  const { data } = await (await native(`/v1/sessions/${own.threadId}/messages`)).json();
  assert.equal(data.length, 4);
});

test("reasoning, and tools of the server, several at once", async () => {
  const own = agent();
  const events = await say(own, '/think Hm.\n/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /say Done');
  assert.ok(kinds(events).includes("REASONING_MESSAGE_CONTENT"));
  assert.equal(own.messages.filter((message) => message.role === "tool").length, 2);
  assert.ok(text(last(own)).endsWith("Done"));
});

test("an approval is an interrupt", async () => {
  const own = agent();
  await say(own, "/say hi");
  await native(`/v1/sessions/${own.threadId}`, {
    method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
  for (const approved of [true, false]) {
    await say(own, '/tool echo {"text": "a"}');
    const [interrupt] = own.pendingInterrupts;
    assert.equal(interrupt.reason, "approval");
    await say(own, null, {
      resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }],
    });
    assert.deepEqual(own.pendingInterrupts, []);
    assert.equal(last(own).role, "assistant");
  }
});

test("a tool of the client", async () => {
  const own = agent();
  const tools = [{
    name: "weather", description: "Returns the weather.",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  }];
  const events = await say(own, '/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}', { tools });
  const { pendingToolCallIds } = events.at(-1).outcome;
  assert.equal(pendingToolCallIds.length, 2);
  for (const toolCallId of pendingToolCallIds) {
    own.addMessage({ id: randomUUID(), role: "tool", toolCallId, content: "sunny" });
  }
  await say(own, null, { tools });
  assert.match(text(last(own)), /sunny[\s\S]*sunny/);
  assert.equal(own.messages.filter((message) => message.role === "tool").length, 2, "each result once");
});

test("a page that is loaded again sees an interrupt, and the messages of an idle thread", async () => {
  const first = agent();
  await say(first, '/tool ask_user {"question": "Tea?"}');
  const [{ id }] = first.pendingInterrupts;
  const second = agent({ threadId: first.threadId });
  await say(second, null);
  assert.deepEqual(second.pendingInterrupts.map((interrupt) => interrupt.id), [id]);
  assert.ok(second.messages.some((message) => message.toolCalls?.[0].id === id));
  await say(second, null, { resume: [{ interruptId: id, status: "resolved", payload: "With milk" }] });
  assert.match(text(last(second)), /With milk/);
  const third = agent({ threadId: first.threadId });
  const events = await say(third, null);
  assert.deepEqual(kinds(events), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
  assert.equal(text(last(third)), text(last(second)));
});

test("a message next to results is refused", async () => {
  const own = agent();
  const tools = [{ name: "weather", description: "Returns the weather.", parameters: { type: "object", properties: {} } }];
  const events = await say(own, '/tool weather {"city": "Bern"}', { tools });
  const [toolCallId] = events.at(-1).outcome.pendingToolCallIds;
  own.addMessage({ id: randomUUID(), role: "tool", toolCallId, content: "sunny" });
  await assert.rejects(say(own, "/say Next", { tools }), /422/);
  own.setMessages(own.messages.slice(0, -1));
  await say(own, null, { tools });
  assert.match(text(last(own)), /sunny/);
});

test("the state of the session", async () => {
  const own = agent();
  await say(own, "/say hi");
  await native(`/v1/sessions/${own.threadId}`, { method: "PATCH", body: JSON.stringify({ state: { color: "red" } }) });
  await say(own, "/say hi");
  assert.deepEqual(own.state, { color: "red" });
});

test("a client that returns in the middle of the text", async () => {
  const first = agent();
  const running = say(first, "/slow 20 80");
  while (!first.messages.some((message) => text(message).split(/\s+/).length > 5 && message.role === "assistant")) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const second = agent({ threadId: first.threadId });
  await say(second, null);
  await running;
  assert.equal(text(last(second)), text(last(first)));
  assert.equal(text(last(second)).trim().split(/\s+/).length, 80);
});

test("an abort through the HTTP API", async () => {
  const own = agent();
  own.addMessage({ id: randomUUID(), role: "user", content: "/slow 50 900" });
  const events = [];
  const running = own.runAgent({}, { onEvent: ({ event }) => void events.push(event) });
  while (!events.some((event) => event.type === "TEXT_MESSAGE_CONTENT")) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await native(`/v1/sessions/${own.threadId}/abort`, { method: "POST" });
  await running;
  assert.deepEqual(events.at(-1).outcome, { type: "cancelled" });
});

test("errors before and after the first byte", async () => {
  const failed = await say(agent(), "/fail auth");
  assert.equal(failed.at(-1).type, "RUN_ERROR");
  await assert.rejects(say(agent({ headers: { authorization: "Bearer wrong" } }), "hi"), /401/);
  await assert.rejects(say(agent(), "hi", { forwardedProps: { agent: "missing" } }), /404/);
  await assert.rejects(say(agent(), "x".repeat((1 << 20) + 1)), /422/);
});

test("a tool of the server that takes seconds", async () => {
  const own = agent();
  await say(own, '/tool sleep {"ms": 4000}');
  assert.match(text(own.messages.find((message) => message.role === "tool")), /slept 4000 ms/);
  assert.match(text(last(own)), /slept 4000 ms/);
});

test("an error after text", async () => {
  const own = agent();
  const events = await say(own, "/fail cut");
  assert.ok(kinds(events).includes("TEXT_MESSAGE_CONTENT"));
  assert.equal(events.at(-1).type, "RUN_ERROR");
});

test("a text of 900 kB is accepted", async () => {
  const own = agent();
  await say(own, `/say Seen\n${"x".repeat(900_000)}`);
  assert.equal(text(last(own)), "Seen");
});
