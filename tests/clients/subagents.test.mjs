// Calls of subagents, decided in the session that has started the subagent, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { HttpAgent } from "@ag-ui/client";
import { Chat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import OpenAI from "openai";

const { URL: url, KEY: key } = process.env;
const headers = { authorization: `Bearer ${key}` };
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const post = (path, body, more = {}) =>
  fetch(`${url}${path}`, { method: "POST", headers: { ...headers, "content-type": "application/json", ...more }, body: JSON.stringify(body) });
/** Creates a session in which calls of `echo` wait, also those of its subagents. */
const careful = async () => (await (await post("/v1/sessions", { permissions: { tools: { echo: "ask" } } })).json()).id;
const task = { agent: "general-purpose", task: '/tool echo {"text": "from the child"}' };
const delegate = `/tool subagent ${JSON.stringify(task)}`;

test("Responses: an approval", async () => {
  const conversation = await careful();
  const asked = await openai.responses.create({ model: "default", conversation, input: delegate });
  const request = asked.output.find((item) => item.type === "mcp_approval_request");
  assert.equal(request.name, "echo");
  const done = await openai.responses.create({
    model: "default", previous_response_id: asked.id,
    input: [{ type: "mcp_approval_response", approval_request_id: request.id, approve: true }],
  });
  assert.match(done.output_text, /from the child/);
});

test("AG-UI: an interrupt", async () => {
  const agent = new HttpAgent({ url: `${url}/ag-ui`, threadId: await careful(), headers });
  agent.addMessage({ id: randomUUID(), role: "user", content: delegate });
  const run = async (input = {}) => {
    let outcome;
    await agent.runAgent(input, { onRunFinishedEvent: ({ event }) => void (outcome = event.outcome) });
    return outcome;
  };
  const { interrupts: [interrupt] } = await run();
  assert.equal(interrupt.metadata.tool, "echo");
  const outcome = await run({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved: false, reason: "no" } }] });
  assert.equal(outcome.type, "success");
});

test("AI SDK: an approval, and a refusal", async () => {
  for (const [approved, state] of [[true, "output-available"], [false, "output-denied"]]) {
    const errors = [];
    const chat = new Chat({
      id: await careful(), transport: new DefaultChatTransport({ api: `${url}/api/chat`, headers }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onError: (error) => errors.push(error),
    });
    await chat.sendMessage({ text: delegate });
    const find = (wanted) => chat.lastMessage.parts.find((part) => part.type === "dynamic-tool" && part.toolName === wanted);
    const { approval } = find("echo");
    await chat.addToolApprovalResponse({ id: approval.id, approved });
    const isDone = () => chat.status === "ready" && chat.lastMessage.parts.some((part) => part.type === "text");
    for (let tries = 0; tries < 400 && !isDone(); tries++) await new Promise((resolve) => setTimeout(resolve, 25));
    assert.deepEqual([find("echo").state, find("subagent").state], [state, "output-available"]);
    assert.notEqual(find("subagent").output.status, "waiting", "the result replaces what was there");
    const reply = chat.lastMessage.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
    if (approved) assert.match(reply, /from the child/);
    assert.deepEqual([errors, chat.messages.length], [[], 2], "it is the same message");
  }
});

test("A2A: an answer in words", async () => {
  const send = async (message) => {
    const body = { jsonrpc: "2.0", id: 1, method: "SendMessage", params: { message: { messageId: randomUUID(), role: "ROLE_USER", ...message } } };
    return (await (await post("/a2a", body, { "a2a-version": "1.0" })).json()).result.task;
  };
  const first = await send({ contextId: await careful(), parts: [{ text: delegate }] });
  assert.equal(first.status.state, "TASK_STATE_INPUT_REQUIRED");
  const done = await send({ taskId: first.id, parts: [{ text: "yes" }] });
  assert.equal(done.status.state, "TASK_STATE_COMPLETED");
});
