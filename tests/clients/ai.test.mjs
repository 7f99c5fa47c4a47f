// The official `ai` and `@ai-sdk/react` packages against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Chat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  WebSocketChatTransport,
} from "ai";
import { until } from "./until.mjs";

const { URL: url, KEY: key } = process.env;
const headers = { authorization: `Bearer ${key}` };
const native = (path, init = {}) => fetch(`${url}${path}`, {
  ...init, headers: { ...headers, "content-type": "application/json", ...init.headers },
});

/** A chat as `useChat` has it. */
function chat(options = {}, body = {}) {
  const { id = randomUUID(), ...rest } = options;
  const errors = [];
  const transport = new DefaultChatTransport({ api: `${url}/api/chat`, headers, body });
  const created = new Chat({ id, transport, onError: (error) => errors.push(error), ...rest });
  return { id, errors, chat: created };
}

const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const tools = (message) => message.parts.filter((part) => part.type === "dynamic-tool");

test("text, and a second message", async () => {
  const { chat: own, id, errors } = chat();
  await own.sendMessage({ text: "/say Hello" });
  await own.sendMessage({ text: "/say Again" });
  assert.deepEqual(errors, []);
  assert.deepEqual(own.messages.map(text), ["/say Hello", "Hello", "/say Again", "Again"]);
  assert.ok(own.lastMessage.metadata.usage.totalTokens > 0);
  const { data } = await (await native(`/v1/sessions/${id}/messages`)).json();
  assert.equal(data.length, 4);
});

test("reasoning, and tools of the server, several at once", async () => {
  let sent = 0;
  const { chat: own, errors } = chat({
    sendAutomaticallyWhen: (state) => lastAssistantMessageIsCompleteWithToolCalls(state) && ++sent < 5,
  });
  await own.sendMessage({ text: '/think Hm.\n/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /say Done' });
  assert.deepEqual(errors, []);
  assert.equal(own.messages.length, 2);
  assert.equal(sent, 0, "the page does not send the results of the server's tools again");
  assert.deepEqual(tools(own.lastMessage).map((part) => part.state), ["output-available", "output-available"]);
  assert.ok(text(own.lastMessage).endsWith("Done"));
  const thoughts = own.lastMessage.parts.filter((part) => part.type === "reasoning");
  assert.deepEqual(thoughts.map((part) => [part.text, part.state]), [["Hm.", "done"]]);
});

test("an approval continues the message", async () => {
  const { chat: own, id, errors } = chat({
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  await own.sendMessage({ text: "/say hi" });
  await native(`/v1/sessions/${id}`, {
    method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
  for (const approved of [true, false]) {
    await own.sendMessage({ text: '/tool echo {"text": "a"}' });
    const count = own.messages.length;
    const [part] = tools(own.lastMessage);
    assert.equal(part.state, "approval-requested");
    await own.addToolApprovalResponse({ id: part.approval.id, approved });
    const state = approved ? "output-available" : "output-denied";
    await until(() => own.status === "ready" && tools(own.lastMessage)[0].state === state && text(own.lastMessage));
    assert.equal(own.messages.length, count, "it is the same message");
  }
  assert.deepEqual(errors, []);
});

test("a tool of the page", async () => {
  const clientTools = [{
    name: "weather", description: "Returns the weather.",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  }];
  const { chat: own, errors } = chat({
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall({ toolCall }) {
      own.addToolOutput({
        tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: `sunny in ${toolCall.input.city}`,
      });
    },
  }, { clientTools });
  await own.sendMessage({ text: '/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}' });
  await until(() => own.status === "ready" && own.lastMessage.role === "assistant" && text(own.lastMessage));
  assert.deepEqual(errors, []);
  assert.match(text(own.lastMessage), /sunny in Bern[\s\S]*sunny in Rome/);
  assert.equal(own.messages.length, 2);
});

test("a question is answered like a tool of the page", async () => {
  const { chat: own, errors } = chat({ sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls });
  await own.sendMessage({ text: '/tool ask_user {"question": "Tea?"}' });
  const [question] = own.lastMessage.parts.filter((part) => part.type === "data-question");
  assert.equal(question.data.payload.question, "Tea?");
  await own.addToolOutput({ tool: "ask_user", toolCallId: question.data.callId, output: "With milk" });
  await until(() => own.status === "ready" && text(own.lastMessage));
  assert.match(text(own.lastMessage), /With milk/);
  assert.deepEqual([errors, own.messages.length], [[], 2]);
});

test("a message after an answer that was not sent is refused, and the answer can be sent", async () => {
  const { chat: own, errors } = chat();
  await own.sendMessage({ text: '/tool ask_user {"question": "Tea?"}' });
  const question = own.lastMessage.parts.find((part) => part.type === "data-question");
  await own.addToolOutput({ tool: "ask_user", toolCallId: question.data.callId, output: "With milk" });
  const answered = [...own.messages];
  await own.sendMessage({ text: "/say Next" });
  assert.match(String(errors), /send the results first/);
  own.messages = answered;
  await own.sendMessage();
  assert.match(text(own.lastMessage), /With milk/);
});

test("a call of a subagent is approved in its own session, and the page continues", async () => {
  const { chat: own, id, errors } = chat();
  await own.sendMessage({ text: "/say hi" });
  await native(`/v1/sessions/${id}`, {
    method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
  const task = { agent: "general-purpose", task: '/tool echo {"text": "a"}\n/then /slow 50 30' };
  await own.sendMessage({ text: `/tool subagent ${JSON.stringify(task)}` });
  const [{ data }] = own.lastMessage.parts.filter((part) => part.type === "data-subagent");
  await native(`/v1/sessions/${data.session}/approvals/${data.pending[0].call_id}`, {
    method: "POST", body: JSON.stringify({ decision: "approve" }), headers: { prefer: "respond-async" },
  });
  await own.resumeStream();
  await until(() => own.status === "ready" && text(own.lastMessage));
  assert.deepEqual([errors, own.messages.length], [[], 4]);
});

test("a message that is generated again is a new turn", async () => {
  const { chat: own, id, errors } = chat();
  await own.sendMessage({ text: "/say Hello" });
  await own.regenerate();
  assert.deepEqual([errors, own.messages.map(text)], [[], ["/say Hello", "Hello"]]);
  const { data } = await (await native(`/v1/sessions/${id}/messages`)).json();
  assert.equal(data.length, 4);
});

test("text that the model's provider cuts again and again is shown once, and then an error", async () => {
  const { chat: own, errors } = chat();
  await own.sendMessage({ text: "/fail cut" });
  assert.equal(errors.length, 1);
  assert.ok(text(own.lastMessage).split("This response").length <= 2);
});

test("a page that returns in the middle of the text", async () => {
  const first = chat();
  first.chat.sendMessage({ text: "/slow 20 80" });
  await until(() => first.chat.messages.length === 2 && text(first.chat.lastMessage).split(/\s+/).length > 5);
  const user = first.chat.messages[0];
  const second = chat({ id: first.id, messages: [user] });
  await second.chat.resumeStream();
  await until(() => second.chat.status === "ready");
  await until(() => first.chat.status === "ready");
  assert.equal(text(second.chat.lastMessage).trim().split(/\s+/).length, 80);
  assert.equal(second.chat.lastMessage.id, first.chat.lastMessage.id);
  assert.equal(text(second.chat.lastMessage), text(first.chat.lastMessage));
  await second.chat.resumeStream();
  assert.equal(second.chat.messages.length, 2, "nothing runs");
});

test("leaving does not end a turn, stopping does", async () => {
  const { chat: own, id } = chat();
  own.sendMessage({ text: "/slow 50 900" });
  await until(() => own.messages.length === 2 && text(own.lastMessage).length > 10);
  await own.stop();
  assert.equal((await (await native(`/v1/sessions/${id}`)).json()).status, "running");
  const stopped = await native(`/api/chat/${id}/stop`, { method: "POST" });
  assert.equal((await stopped.json()).aborted, true);
  assert.equal((await (await native(`/v1/sessions/${id}`)).json()).status, "idle");
});

test("errors before and after the first byte", async () => {
  const failed = chat();
  await failed.chat.sendMessage({ text: "/fail auth" });
  assert.equal(failed.errors.length, 1);
  const wrong = chat({ transport: new DefaultChatTransport({
    api: `${url}/api/chat`, headers: { authorization: "Bearer wrong" },
  }) });
  await wrong.chat.sendMessage({ text: "hi" });
  assert.match(wrong.errors[0].message, /unauthenticated/);
  const unknown = chat({}, { agent: "missing" });
  await unknown.chat.sendMessage({ text: "hi" });
  assert.match(unknown.errors[0].message, /unknown_agent/);
  const big = chat();
  await big.chat.sendMessage({ text: "x".repeat((1 << 20) + 1) });
  assert.match(big.errors[0].message, /1 MiB/);
});

/** Opens a socket, which is closed after the test. */
function socket(t, credential = key, body = {}) {
  const headers = { authorization: `Bearer ${credential}` };
  const created = new WebSocketChatTransport({ url: `${url}/api/chat`, headers, body });
  t.after(() => created.close());
  return created;
}

test("several chats over one WebSocket: text, an approval, a page that returns, and errors", async (t) => {
  const transport = socket(t);
  const [one, other] = [1, 2].map(() => chat({
    transport, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  }));
  await Promise.all([one.chat.sendMessage({ text: "/slow 10 40" }), other.chat.sendMessage({ text: "/say hi" })]);
  assert.equal(text(one.chat.lastMessage).trim().split(/\s+/).length, 40);
  assert.equal(text(other.chat.lastMessage), "hi");
  await native(`/v1/sessions/${other.id}`, {
    method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
  for (const [approved, state] of [[true, "output-available"], [false, "output-denied"]]) {
    await other.chat.sendMessage({ text: '/tool echo {"text": "a"}' });
    const [part] = tools(other.chat.lastMessage);
    await other.chat.addToolApprovalResponse({ id: part.approval.id, approved });
    await until(() => other.chat.status === "ready" && tools(other.chat.lastMessage)[0].state === state && text(other.chat.lastMessage));
  }
  await other.chat.sendMessage({ text: `/say Seen\n${"x".repeat(900_000)}` });
  assert.equal(text(other.chat.lastMessage), "Seen");
  one.chat.sendMessage({ text: "/slow 20 80" });
  await until(() => one.chat.messages.length === 4 && text(one.chat.lastMessage).split(/\s+/).length > 5);
  const second = chat({ id: one.id, transport: socket(t), messages: one.chat.messages.slice(0, 3) });
  await second.chat.resumeStream();
  await until(() => second.chat.status === "ready");
  assert.equal(text(second.chat.lastMessage).trim().split(/\s+/).length, 80);
  await second.chat.resumeStream();
  assert.equal(second.chat.messages.length, 4, "nothing runs");
  assert.deepEqual([...one.errors, ...other.errors, ...second.errors], []);
  const wrong = chat({ transport: socket(t, "wrong") });
  await wrong.chat.sendMessage({ text: "hi" });
  assert.match(wrong.errors[0].message, /unauthenticated/);
  const failed = chat({ transport });
  await failed.chat.sendMessage({ text: "/fail auth" });
  assert.equal(failed.errors.length, 1);
});

test("tools over a WebSocket: of the server, several at once and one that takes seconds, and of the page", async (t) => {
  const clientTools = [{ name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } }];
  const transport = socket(t, key, { clientTools });
  const one = chat({ transport }), other = chat({
    transport, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall({ toolCall: { toolName, toolCallId, input } }) {
      other.chat.addToolOutput({ tool: toolName, toolCallId, output: `sunny in ${input.city}` });
    },
  });
  await Promise.all([
    one.chat.sendMessage({ text: '/tool echo {"text": "a"}\n/tool sleep {"ms": 4000}\n/then /say Done' }),
    other.chat.sendMessage({ text: '/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}' }),
  ]);
  assert.deepEqual(tools(one.chat.lastMessage).map((part) => part.state), ["output-available", "output-available"]);
  assert.ok(text(one.chat.lastMessage).endsWith("Done"));
  await until(() => other.chat.status === "ready" && text(other.chat.lastMessage));
  assert.match(text(other.chat.lastMessage), /sunny in Bern[\s\S]*sunny in Rome/);
  assert.deepEqual([...one.errors, ...other.errors], []);
});

test("a WebSocket: leaving, stopping, and errors that end only their own request", async (t) => {
  const transport = socket(t);
  const left = chat({ transport });
  left.chat.sendMessage({ text: "/slow 50 900" });
  await until(() => left.chat.messages.length === 2 && text(left.chat.lastMessage).length > 10);
  await left.chat.stop();
  assert.equal((await (await native(`/v1/sessions/${left.id}`)).json()).status, "running");
  const stopped = await native(`/api/chat/${left.id}/stop`, { method: "POST" });
  assert.equal((await stopped.json()).aborted, true);

  const going = chat({ transport });
  const sent = going.chat.sendMessage({ text: "/slow 20 150" });
  const failed = chat({ transport });
  await failed.chat.sendMessage({ text: "/slow 20 5\n/fail auth" });
  assert.equal(failed.errors.length, 1);
  assert.match(text(failed.chat.lastMessage), /^word1 /);
  const unknown = chat({ transport: socket(t, key, { agent: "missing" }) });
  await unknown.chat.sendMessage({ text: "hi" });
  assert.match(unknown.errors[0].message, /unknown_agent/);
  for (const [length, why] of [[(1 << 20) + 1, /1 MiB/], [5 << 20, /4 MiB/]]) {
    const big = chat({ transport });
    await big.chat.sendMessage({ text: "x".repeat(length) });
    assert.match(big.errors[0].message, why);
  }
  await sent;
  assert.deepEqual([going.errors, text(going.chat.lastMessage).trim().split(/\s+/).length], [[], 150]);
});

test("a tool of the server that takes seconds", async () => {
  const { chat: own, errors } = chat();
  await own.sendMessage({ text: '/tool sleep {"ms": 4000}' });
  assert.deepEqual(errors, []);
  const [part] = tools(own.lastMessage);
  assert.equal(part.state, "output-available");
  assert.match(JSON.stringify(part.output), /slept 4000 ms/);
  assert.match(text(own.lastMessage), /slept 4000 ms/);
});

test("a text of 900 kB is accepted", async () => {
  const { chat: own, errors } = chat();
  await own.sendMessage({ text: `/say Seen\n${"x".repeat(900_000)}` });
  assert.deepEqual([errors, text(own.lastMessage)], [[], "Seen"]);
});
