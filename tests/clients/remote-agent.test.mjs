// An agent of the real Worker, which URL and KEY name, with subagents whose work a server of the official package of A2A
// does. It listens on SERVER.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import express from "express";
import { TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { UserBuilder, jsonRpcHandler } from "@a2a-js/sdk/server/express";
import { native } from "./native.mjs";
import { until } from "./until.mjs";

const { SERVER: address } = process.env;

const [waiting, canceled] = [new Set(), new Set()];

/** Repeats what it is told, word by word, and does what the first word says. */
const executor = {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const text = userMessage.parts.map(({ content }) => content?.value ?? "").join("");
    const status = (state, said) => ({ state, timestamp: new Date().toISOString(), message: said && message(said) });
    const message = (said) => ({
      messageId: randomUUID(), contextId, taskId, role: 2, parts: [{ content: { $case: "text", value: said }, mediaType: "text/plain" }],
    });
    const report = (state, said) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, said) }));
    bus.publish(AgentEvent.task(task ?? {
      id: taskId, contextId, status: status(TaskState.TASK_STATE_WORKING), history: [userMessage], artifacts: [],
    }));
    const [first] = text.split(" ");
    if (first === "ask" && !task) {
      report(TaskState.TASK_STATE_INPUT_REQUIRED, "Which size?");
    } else if (first === "fail") {
      report(TaskState.TASK_STATE_FAILED, "out of paper");
    } else if (first === "wait") {
      waiting.add(taskId);
      await until(() => canceled.has(taskId));
      report(TaskState.TASK_STATE_CANCELED);
    } else {
      text.split(/(?<= )/).forEach((word, index) => bus.publish(AgentEvent.artifactUpdate({
        taskId, contextId, append: index > 0, lastChunk: false,
        artifact: { artifactId: "a", parts: [{ content: { $case: "text", value: word }, mediaType: "text/plain" }] },
      })));
      report(TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  },
  async cancelTask(taskId) {
    canceled.add(taskId);
  },
};

const card = (streaming) => ({
  name: "repeater", description: "Repeats.", version: "1", defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
  capabilities: { streaming, pushNotifications: false }, skills: [],
  supportedInterfaces: [{ url: `http://${address}/`, protocolBinding: "JSONRPC", protocolVersion: "1.0" }],
});

const app = express();
for (const [path, streaming] of [["/streams", true], ["/whole", false]]) {
  const requestHandler = new DefaultRequestHandler(card(streaming), new InMemoryTaskStore(), executor);
  app.use(path, jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
}
let listening;
before(() => new Promise((ready) => (listening = app.listen(Number(address.split(":")[1]), "127.0.0.1", ready))));
after(() => listening.close());


const kinds = ["streams", "whole"].map((id) => ({ id, description: id, remote: { url: `http://${address}/${id}` } }));
before(() => native("PUT", "/v1/agents/caller", { model: "demo/echo", subagents: kinds, background_tasks: "on" }));

/** Lets the agent call a tool. Returns what the tool has returned. */
async function call(session, tool, args) {
  const turn = await native("POST", `/v1/sessions/${session}/messages?agent=caller`, {
    content: `/tool ${tool} ${JSON.stringify({ timeout_seconds: 60, label: "one", ...args })}`,
  });
  assert.equal(turn.status, "completed");
  const log = await native("GET", `/v1/sessions/${session}/events`, undefined, { accept: "application/x-ndjson" });
  return log.trim().split("\n").map((line) => JSON.parse(line)).findLast(({ type }) => type === "tool.completed");
}

for (const agent_id of ["streams", "whole"]) {
  test(`${agent_id}: tasks of one conversation`, async () => {
    const session = `remote-${agent_id}`;
    const first = await call(session, "agent_spawn", { agent_id, task: "repeat this and that" });
    assert.equal(first.result.reply, "repeat this and that");
    const asked = await call(session, "agent_send", { message: "ask me" });
    assert.equal(asked.result.reply, "The remote agent needs input before it can go on: Which size?");
    const answered = await call(session, "agent_send", { message: "small please" });
    assert.equal(answered.result.reply, "small please");
  });

  test(`${agent_id}: a task that fails`, async () => {
    const failed = await call(`remote-fail-${agent_id}`, "agent_spawn", { agent_id, task: "fail now" });
    assert.match(JSON.stringify(failed), /the remote agent has failed at the task/);
  });
}

test("an abort cancels the task", async () => {
  const session = "remote-abort";
  const args = JSON.stringify({ agent_id: "streams", task: "wait for ever", timeout_seconds: 60 });
  const message = { content: `/tool agent_spawn ${args}` };
  await native("POST", `/v1/sessions/${session}/messages?agent=caller`, message, { prefer: "respond-async" });
  await until(() => waiting.size > 0);
  await native("POST", `/v1/sessions/${session}/abort`, {});
  await until(() => canceled.size > 0);
});
