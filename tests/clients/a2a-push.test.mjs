// Push notifications of A2A with the official `@a2a-js/sdk` package, against the real Worker, which URL and KEY name. The
// Worker may send them to RECEIVER only, where this test listens.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { TaskState } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, createAuthenticatingFetchWithRetry } from "@a2a-js/sdk/client";

const { URL: url, KEY: key, RECEIVER: receiver } = process.env;
const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ authorization: `Bearer ${key}` }), shouldRetryWithHeaders: async () => undefined,
});
const client = await new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl })] }).createFromUrl(url);

/** The notifications so far: headers and status updates. */
const received = [];
let wake = () => {};
/** The statuses of the next responses. Later ones are 204. */
const statuses = [];
const server = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  received.push({ path: request.url, headers: request.headers, update: JSON.parse(body).statusUpdate });
  response.writeHead(statuses.shift() ?? 204).end();
  wake();
});
const [host, port] = receiver.split(":");
await new Promise((listening) => server.listen(Number(port), host, listening));
after(() => server.close());

/** Waits for a notification of this state of a task. */
async function until(id, state) {
  const found = () => received.find(({ update }) => update.taskId === id && update.status.state === state);
  while (!found()) await new Promise((next) => { wake = next; });
  return found();
}

const config = (more = {}) => ({
  tenant: "", id: "", taskId: "", url: `http://${receiver}/tasks`, token: "", authentication: undefined, ...more,
});
const says = (value, taskPushNotificationConfig, more = {}) => ({
  message: {
    messageId: randomUUID(), role: 1, contextId: "", taskId: "", metadata: undefined, extensions: [], referenceTaskIds: [],
    parts: [{ content: { $case: "text", value }, metadata: undefined, filename: "", mediaType: "text/plain" }], ...more,
  },
  configuration: { acceptedOutputModes: [], returnImmediately: true, taskPushNotificationConfig },
  metadata: undefined, tenant: "",
});

test("the card says that there are push notifications", async () => {
  assert.equal((await client.getAgentCard()).capabilities.pushNotifications, true);
});

test("notifications are sent when a task waits, continues and ends", async () => {
  const authentication = { scheme: "Bearer", credentials: "pw" };
  const asks = '/tool ask_user {"question": "Tea?"}\n/then\n/say Done';
  const task = await client.sendMessage(says(asks, config({ token: "t1", authentication })));
  const waiting = await until(task.id, "TASK_STATE_INPUT_REQUIRED");
  assert.equal(waiting.update.contextId, task.contextId);
  assert.equal(waiting.headers["x-a2a-notification-token"], "t1");
  assert.equal(waiting.headers.authorization, "Bearer pw");
  await client.sendMessage(says("Yes", undefined, { taskId: task.id, contextId: task.contextId }));
  await until(task.id, "TASK_STATE_COMPLETED");
  const found = await client.getTask({ id: task.id, tenant: "" });
  assert.equal(found.status.state, TaskState.TASK_STATE_COMPLETED);
});

test("a notification that failed is sent again", async () => {
  statuses.push(500, 503);
  const task = await client.sendMessage(says("/say Hello", config()));
  const tries = () => received.filter(({ update }) => update.taskId === task.id).length;
  while (tries() < 3) await new Promise((next) => { wake = next; });
  await until(task.id, "TASK_STATE_COMPLETED");
});

test("configurations are created, read, listed and removed", async () => {
  const task = await client.sendMessage(says("/slow 200 500"));
  const taskId = task.id;
  const created = await client.createTaskPushNotificationConfig(config({ id: "own", taskId, url: `http://${receiver}/own` }));
  assert.deepEqual([created.id, created.taskId, created.url], ["own", taskId, `http://${receiver}/own`]);
  assert.equal((await client.getTaskPushNotificationConfig({ tenant: "", taskId, id: "own" })).url, created.url);
  const other = await client.createTaskPushNotificationConfig(config({ taskId }));
  const list = async () => {
    const { configs } = await client.listTaskPushNotificationConfig({ tenant: "", taskId, pageSize: 0, pageToken: "" });
    return configs.map(({ id }) => id).sort();
  };
  assert.deepEqual(await list(), [other.id, "own"].sort());
  await client.deleteTaskPushNotificationConfig({ tenant: "", taskId, id: other.id });
  assert.deepEqual(await list(), ["own"]);
  await client.cancelTask({ id: taskId, tenant: "", metadata: undefined });
  const last = await until(taskId, "TASK_STATE_CANCELED");
  assert.equal(last.path, "/own");
});

test("only receivers that the operator allows are accepted", async () => {
  for (const [other, why] of [[`http://${host}:1/tasks`, /ports/], ["https://example.com/tasks", /not allowed/]]) {
    await assert.rejects(client.sendMessage(says("/say Hello", config({ url: other }))), why);
  }
});
