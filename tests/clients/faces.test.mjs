// One turn through several protocols at once, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { HttpAgent } from "@ag-ui/client";
import { Chat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import OpenAI from "openai";

const { URL: url, KEY: key } = process.env;
const headers = { authorization: `Bearer ${key}` };
const native = async (path, init = {}) => {
  const response = await fetch(`${url}${path}`, {
    ...init, headers: { ...headers, "content-type": "application/json", ...init.headers },
  });
  return response.json();
};
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const page = (id, options = {}) => new Chat({
  id, transport: new DefaultChatTransport({ api: `${url}/api/chat`, headers }), ...options,
});
const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

/** Waits until something is as expected. */
async function until(expected) {
  for (let tries = 0; tries < 400; tries++) {
    const found = await expected();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  assert.fail("it never happened");
}

/** Reads a response of OpenAI's API from its beginning until it ends. */
async function readResponse(turn, id) {
  const stream = await openai.responses.retrieve(`resp_${turn}_0.${id}`, { stream: true });
  const found = { text: "", calls: [], results: [] };
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") found.text += event.delta;
    if (event.type !== "response.output_item.done") continue;
    if (event.item.type === "function_call") found.calls.push(event.item.name);
    if (event.item.type === "function_call_output") found.results.push(event.item.output);
  }
  return found;
}

/** Follows the running turn as a run of AG-UI. */
async function readRun(id) {
  const agent = new HttpAgent({ url: `${url}/ag-ui`, headers, threadId: id });
  const found = { text: "", calls: [], results: [], outcome: undefined };
  await agent.runAgent({}, { onEvent: ({ event }) => {
    if (event.type === "TEXT_MESSAGE_CONTENT") found.text += event.delta;
    if (event.type === "TOOL_CALL_START") found.calls.push(event.toolCallName);
    if (event.type === "TOOL_CALL_RESULT") found.results.push(event.content);
    if (event.type === "RUN_FINISHED") found.outcome = event.outcome?.type ?? "success";
  } });
  return found;
}

test("a turn that is followed through several protocols is the same in all", async () => {
  const id = randomUUID();
  const own = page(id);
  const sent = own.sendMessage({ text: '/tool echo {"text": "a"}\n/then /slow 20 60' });
  const turn = await until(() => own.lastMessage?.role === "assistant" && own.lastMessage.id);
  const [response, run] = await Promise.all([readResponse(turn, id), readRun(id), sent]);
  const whole = await native(`/v1/sessions/${id}/turns/${turn}`);
  assert.equal(whole.status, "completed");
  const spoken = whole.reply.text;
  assert.equal(spoken.trim().split(/\s+/).length, 60);
  assert.deepEqual([text(own.lastMessage), response.text, run.text], [spoken, spoken, spoken]);
  assert.deepEqual([response.calls, run.calls], [["echo"], ["echo"]]);
  const [part] = own.lastMessage.parts.filter((part) => part.type === "dynamic-tool");
  assert.equal(part.toolName, "echo");
  for (const results of [response.results, run.results]) assert.match(results.join(), /a/);
  assert.equal(run.outcome, "success");
});

test("a turn that began in one protocol is approved in another", async () => {
  const id = randomUUID();
  const own = page(id, { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
  await own.sendMessage({ text: "/say hi" });
  await native(`/v1/sessions/${id}`, {
    method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });

  // It begins as a completion of OpenAI, and is approved in a run of AG-UI.
  const completion = await openai.chat.completions.create(
    { model: "default", messages: [{ role: "user", content: '/tool echo {"text": "a"}' }] },
    { headers: { "x-session-id": id } },
  );
  assert.match(completion.choices[0].message.content, /waits for a decision/);
  const [{ call_id: call }] = (await native(`/v1/sessions/${id}`)).pending;
  const agent = new HttpAgent({ url: `${url}/ag-ui`, headers, threadId: id });
  const results = [];
  await agent.runAgent(
    { resume: [{ interruptId: call, status: "resolved", payload: { approved: true } }] },
    { onEvent: ({ event }) => void (event.type === "TOOL_CALL_RESULT" && results.push(event.content)) },
  );
  assert.equal(results.length, 1);

  // It begins in a page, is approved as a response of OpenAI, and the page follows.
  await own.sendMessage({ text: '/tool echo {"text": "b"}\n/then /slow 50 20' });
  const turn = own.lastMessage.id;
  const [asked] = own.lastMessage.parts.filter((part) => part.type === "dynamic-tool");
  assert.equal(asked.state, "approval-requested");
  const decided = await openai.responses.create({
    model: "default", previous_response_id: `resp_${turn}_0.${id}`,
    input: [{ type: "mcp_approval_response", approval_request_id: asked.approval.id, approve: true }],
    background: true,
  });
  assert.ok(["in_progress", "queued"].includes(decided.status), decided.status);
  await own.addToolApprovalResponse({ id: asked.approval.id, approved: true });
  await until(() => own.status === "ready" && text(own.lastMessage).trim().split(/\s+/).length === 20);
  assert.equal(own.lastMessage.id, turn);
  assert.equal((await native(`/v1/sessions/${id}/turns/${turn}`)).reply.text, text(own.lastMessage));
});
