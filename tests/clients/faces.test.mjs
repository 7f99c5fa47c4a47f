// Turns through several protocols at once, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { SendMessageRequest, TaskState } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
import { HttpAgent } from "@ag-ui/client";
import { Chat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { EventSource } from "eventsource";
import OpenAI from "openai";
import { connectTasks } from "./mcp-tasks.mjs";
import { until } from "./until.mjs";

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
const fetchImpl = (input, init = {}) => {
  const own = new Headers(init.headers);
  own.set("authorization", headers.authorization);
  return fetch(input, { ...init, headers: own });
};
const a2a = await new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl })] }).createFromUrl(url);
const says = (message) => SendMessageRequest.fromJSON({ message: { messageId: randomUUID(), role: "ROLE_USER", ...message } });
const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

/** Runs the agent with AG-UI; without a message, follows the running turn. */
async function run(id, { message, ...input }, onEvent) {
  const agent = new HttpAgent({ url: `${url}/ag-ui`, headers, threadId: id });
  if (message) agent.addMessage({ id: randomUUID(), role: "user", content: message });
  await agent.runAgent(input, { onEvent: ({ event }) => onEvent(event) });
}

/** What a client has of a turn. */
const nothing = () => ({ text: "", calls: [], results: [], outcome: undefined });

/** Follow a turn from its start, each with the client of another protocol. */
const followers = {
  async Responses(turn, id, found) {
    const stream = await openai.responses.retrieve(`resp_${turn}_0.${id}`, { stream: true });
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") found.text += event.delta;
      if (event.response) found.outcome = event.response.status;
      if (event.type !== "response.output_item.done") continue;
      if (event.item.type === "function_call") found.calls.push(event.item.name);
      if (event.item.type === "function_call_output") found.results.push(event.item.output);
    }
  },
  async "AG-UI"(_turn, id, found) {
    const outcomes = { success: "completed", cancelled: "cancelled" };
    await run(id, {}, (event) => {
      if (event.type === "TEXT_MESSAGE_CONTENT") found.text += event.delta;
      if (event.type === "TOOL_CALL_START") found.calls.push(event.toolCallName);
      if (event.type === "TOOL_CALL_RESULT") found.results.push(event.content);
      if (event.type === "RUN_FINISHED") found.outcome = outcomes[event.outcome.type];
      if (event.type === "RUN_ERROR") found.outcome = "failed";
    });
  },
  async A2A(turn, id, found) {
    // A task shows no tools.
    Object.assign(found, { calls: undefined, results: undefined });
    const outcomes = {
      [TaskState.TASK_STATE_COMPLETED]: "completed", [TaskState.TASK_STATE_FAILED]: "failed",
      [TaskState.TASK_STATE_CANCELED]: "cancelled",
    };
    const artifacts = new Map();
    for await (const { payload: { $case, value } } of a2a.resubscribeTask({ id: `${turn}.${id}`, tenant: "" })) {
      if ($case === "statusUpdate") found.outcome = outcomes[value.status.state];
      if ($case !== "artifactUpdate") continue;
      const { artifactId, parts } = value.artifact;
      const before = value.append ? artifacts.get(artifactId) : "";
      artifacts.set(artifactId, before + parts.map((part) => part.content.value).join(""));
      found.text = [...artifacts.values()].join("");
    }
  },
  eventsource: (_turn, id, found) => new Promise((resolve, reject) => {
    const source = new EventSource(`${url}/v1/sessions/${id}/events?after=0`, {
      fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, ...headers } }),
    });
    const on = (type, handle) => source.addEventListener(type, ({ data }) => handle(JSON.parse(data)));
    on("message.delta", ({ delta }) => void (found.text += delta));
    on("tool.started", ({ name }) => void found.calls.push(name));
    on("tool.completed", ({ result }) => void found.results.push(result));
    for (const [type, outcome] of [["completed", "completed"], ["failed", "failed"], ["canceled", "cancelled"]]) {
      on(`turn.${type}`, () => {
        found.outcome = outcome;
        source.close();
        resolve();
      });
    }
    source.addEventListener("error", ({ code }) => {
      if (source.readyState === source.CLOSED) reject(new Error(`closed: ${code}`));
    });
  }),
};

// The turns take 10 seconds, so that each client follows before the end, and run at once.
describe("a turn that is followed through all protocols at once", { concurrency: true }, () => {
  for (const [outcome, rest] of [
    ["completed", "/slow 20 500"], ["failed", "/slow 20 500\n/fail auth"], ["cancelled", "/slow 20 900"],
  ]) {
    test(`a ${outcome} turn is the same in each`, async () => {
      const id = randomUUID();
      const found = Object.fromEntries(Object.keys(followers).map((name) => [name, nothing()]));
      const inPage = found["AI SDK"] = nothing();
      const own = page(id, {
        onFinish({ isError, finishReason }) {
          inPage.outcome = isError ? "failed" : finishReason === "stop" ? "completed" : "cancelled";
        },
      });
      const sent = own.sendMessage({ text: `/tool echo {"text": "a"}\n/then ${rest}` });
      const turn = await until(() => own.lastMessage?.role === "assistant" && own.lastMessage.id);
      const following = Object.entries(followers).map(([name, follow]) => follow(turn, id, found[name]));
      if (outcome === "cancelled") {
        await until(() => Object.keys(followers).every((name) => found[name].text));
        await native(`/v1/sessions/${id}/abort`, { method: "POST" });
      }
      await Promise.all([sent, ...following]);
      const parts = own.lastMessage.parts.filter((part) => part.type === "dynamic-tool");
      inPage.text = text(own.lastMessage);
      inPage.calls = parts.map((part) => part.toolName);
      inPage.results = parts.map((part) => part.output);

      const expected = { text: found.eventsource.text, calls: ["echo"], results: ["a"], outcome };
      assert.match(expected.text, /^word1 word2 /);
      const withoutTools = { ...expected, calls: undefined, results: undefined };
      for (const [name, its] of Object.entries(found)) assert.deepEqual(its, its.calls ? expected : withoutTools, name);
      const whole = await native(`/v1/sessions/${id}/turns/${turn}`);
      assert.equal(whole.status, outcome === "cancelled" ? "canceled" : outcome);
      if (outcome === "completed") assert.equal(whole.reply.text, expected.text);
    });
  }
});

const asks = '/tool echo {"text": "approved"}';

/** Begin a turn in a session in which calls of `echo` wait. Each returns the id of the call as its protocol shows it. */
const begin = {
  async "chat completions"(id) {
    const { choices: [{ message }] } = await openai.chat.completions.create(
      { model: "default", messages: [{ role: "user", content: asks }] }, { headers: { "x-session-id": id } },
    );
    assert.match(message.content, /waits for a decision/);
    return message.content;
  },
  async Responses(id) {
    const { output } = await openai.responses.create({ model: "default", conversation: id, input: asks });
    return output.find((item) => item.type === "mcp_approval_request").id;
  },
  async "AI SDK"(id) {
    const own = page(id);
    await own.sendMessage({ text: asks });
    return own.lastMessage.parts.find((part) => part.state === "approval-requested").approval.id;
  },
  async "AG-UI"(id) {
    let outcome;
    await run(id, { message: asks }, (event) => void (outcome = event.outcome));
    return outcome.interrupts[0].id;
  },
  async A2A(id) {
    const task = await a2a.sendMessage(says({ contextId: id, parts: [{ text: asks }] }));
    assert.equal(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    return task.status.message.parts[1].content.value.pending[0].callId;
  },
  async MCP(id) {
    const { client, tasks } = await connectTasks();
    // Not the client of tasks: a call without forms returns what waits.
    const { structuredContent } = await client.callTool({ name: "ask_agent", arguments: { message: asks, session: id } });
    await tasks.close();
    await client.close();
    return structuredContent.pending[0].call_id;
  },
};

/** Approve a call of a turn that another client has begun. Each returns the text that follows. */
const approve = {
  async Responses(id, turn, call) {
    const response = await openai.responses.create({
      model: "default", previous_response_id: `resp_${turn}_0.${id}`,
      input: [{ type: "mcp_approval_response", approval_request_id: call, approve: true }],
    });
    return response.output_text;
  },
  async "AI SDK"(id, turn, call) {
    const part = {
      type: "dynamic-tool", toolName: "echo", toolCallId: call, state: "approval-requested",
      input: { text: "approved" }, approval: { id: call },
    };
    const own = page(id, {
      messages: [
        { id: "u", role: "user", parts: [{ type: "text", text: asks }] }, { id: turn, role: "assistant", parts: [part] },
      ],
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    });
    await own.addToolApprovalResponse({ id: call, approved: true });
    await until(() => own.status === "ready" && text(own.lastMessage));
    assert.deepEqual([own.lastMessage.id, own.lastMessage.parts[0].state], [turn, "output-available"]);
    return text(own.lastMessage);
  },
  async "AG-UI"(id, _turn, call) {
    let said = "";
    const resume = [{ interruptId: call, status: "resolved", payload: { approved: true } }];
    await run(id, { resume }, (event) => void (event.type === "TEXT_MESSAGE_CONTENT" && (said += event.delta)));
    return said;
  },
  async A2A(id, turn, callId) {
    const parts = [{ data: { callId, approved: true } }];
    const task = await a2a.sendMessage(says({ contextId: id, taskId: `${turn}.${id}`, parts }));
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    return task.artifacts.at(-1).parts[0].content.value;
  },
  async MCP(id, turn, call) {
    const { client, tasks } = await connectTasks();
    const task = tasks.task(`${turn}.${id}`);
    assert.equal((await task.snapshot()).status, "input_required");
    await task.update({ [call]: { action: "accept", content: { approved: true } } });
    const { result } = await task.result();
    await tasks.close();
    await client.close();
    return result.content[0].text;
  },
};

for (const [from, to] of [
  ["A2A", "AI SDK"], ["AG-UI", "Responses"], ["AI SDK", "A2A"], ["chat completions", "AG-UI"], ["Responses", "A2A"],
  ["MCP", "AI SDK"], ["A2A", "MCP"],
]) {
  test(`a turn that began in ${from} is approved in ${to}`, async () => {
    const permissions = { tools: { echo: "ask" } };
    const { id } = await native("/v1/sessions", { method: "POST", body: JSON.stringify({ permissions }) });
    const shown = await begin[from](id);
    const { pending: [{ call_id: call, turn }] } = await native(`/v1/sessions/${id}`);
    assert.ok(shown.includes(call), `${shown} names ${call}`);
    assert.match(await approve[to](id, turn, call), /approved/);
    const { status, outcomes } = await native(`/v1/sessions/${id}/turns/${turn}`);
    assert.deepEqual([status, outcomes], ["completed", { result: 1 }]);
  });
}

test("a page follows its turn, which was approved in Responses", async () => {
  const id = randomUUID();
  const own = page(id, { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
  await own.sendMessage({ text: "/say hi" });
  await native(`/v1/sessions/${id}`, {
    method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
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
