// The official `@a2a-js/sdk` package against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { TaskState } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, createAuthenticatingFetchWithRetry } from "@a2a-js/sdk/client";

const { URL: url, KEY: key } = process.env;
const native = (path, init = {}) => fetch(`${url}${path}`, {
  ...init, headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...init.headers },
});
const connect = async (credential = key, path = "/") => {
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
    headers: async () => ({ authorization: `Bearer ${credential}` }),
    shouldRetryWithHeaders: async () => undefined,
  });
  const factory = new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl })] });
  return factory.createFromUrl(`${url}${path}`);
};
const client = await connect();

const says = (content, more = {}, configuration = {}) => ({
  message: {
    messageId: randomUUID(), role: 1, contextId: "", taskId: "", metadata: undefined, extensions: [],
    referenceTaskIds: [],
    parts: [typeof content === "string"
      ? { content: { $case: "text", value: content }, metadata: undefined, filename: "", mediaType: "text/plain" }
      : { content, metadata: undefined, filename: "", mediaType: "" }],
    ...more,
  },
  configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: false, ...configuration },
  metadata: undefined, tenant: "",
});
const texts = (task) => task.artifacts.map((artifact) => artifact.parts.map((part) => part.content.value).join(""));

/** Collects the artifacts and states of a stream. */
async function read(stream) {
  const found = { task: undefined, states: [], texts: new Map() };
  for await (const { payload } of stream) {
    if (payload.$case === "task") {
      found.task = payload.value;
      found.states.push(payload.value.status.state);
    } else if (payload.$case === "statusUpdate") {
      found.states.push(payload.value.status.state);
    } else if (payload.$case === "artifactUpdate") {
      const { artifact: { artifactId, parts }, append } = payload.value;
      const before = append ? found.texts.get(artifactId) : "";
      found.texts.set(artifactId, before + parts.map((part) => part.content.value).join(""));
    }
  }
  return found;
}

test("a card, text, and a second message in the same context", async () => {
  const card = await client.getAgentCard();
  assert.equal(card.name, "default");
  const task = await client.sendMessage(says("/say Hello"));
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.deepEqual(texts(task), ["Hello"]);
  const { contextId } = task;
  const second = await client.sendMessage(says("/say Again", { contextId }));
  assert.deepEqual(texts(second), ["Again"]);
  const { tasks, totalSize } = await client.listTasks({
    contextId, tenant: "", status: 0, pageToken: "", statusTimestampAfter: undefined, includeArtifacts: true,
  });
  assert.deepEqual([tasks.map(texts), totalSize], [[["Again"], ["Hello"]], 2]);
});

test("the card of an agent of the tenant, with a key", async () => {
  const name = `card-${randomUUID().slice(0, 8)}`;
  const stored = await native(`/v1/agents/${name}`, { method: "PUT", body: JSON.stringify({ instructions: "Be brief." }) });
  assert.equal(stored.status, 201);
  const card = `/a2a/${name}/.well-known/agent-card.json`;
  assert.equal((await (await native(card)).json()).name, name);
  assert.equal((await fetch(`${url}${card}`)).status, 404);
  await native(`/v1/agents/${name}`, { method: "DELETE" });
});

test("a message to a busy context is a task at once", async () => {
  const running = await client.sendMessage(says("/slow 50 900", {}, { returnImmediately: true }));
  const { contextId } = running;
  const states = [];
  for await (const { payload } of client.sendMessageStream(says("/say Later", { contextId }))) {
    if (payload.$case === "task") {
      states.push(payload.value.status.state);
      assert.ok(payload.value.id);
      await client.cancelTask({ id: running.id, tenant: "", metadata: undefined });
    } else if (payload.$case === "statusUpdate") states.push(payload.value.status.state);
  }
  assert.deepEqual(states, [
    TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED,
  ]);
});

test("the tasks of all contexts", async () => {
  const made = [];
  for (const text of ["/say One", "/say Two"]) made.push((await client.sendMessage(says(text))).id);
  const found = [];
  let pageToken = "";
  do {
    const page = await client.listTasks({
      contextId: "", tenant: "", status: 0, pageToken, statusTimestampAfter: undefined, includeArtifacts: false,
    });
    found.push(...page.tasks.map(({ id }) => id));
    pageToken = page.nextPageToken;
  } while (pageToken && !made.every((id) => found.includes(id)));
  assert.deepEqual(found.filter((id) => made.includes(id)), made.reverse());
});

test("a stream, with tools of the server", async () => {
  const stream = client.sendMessageStream(says('/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /slow 10 40'));
  const found = await read(stream);
  assert.deepEqual(found.states, [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]);
  const task = await client.getTask({ id: found.task.id, tenant: "" });
  assert.deepEqual([...found.texts.values()], texts(task));
  assert.equal(texts(task).at(-1).trim().split(/\s+/).length, 40);
});

test("an approval is input that the task requires", async () => {
  const contextId = randomUUID();
  await client.sendMessage(says("/say hi", { contextId }));
  await native(`/v1/sessions/${contextId}`, {
    method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
  });
  for (const approved of [true, false]) {
    const task = await client.sendMessage(says('/tool echo {"text": "a"}', { contextId }));
    assert.equal(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    const { pending: [{ callId }] } = task.status.message.parts[1].content.value;
    const data = { $case: "data", value: { callId, approved } };
    const done = await client.sendMessage(says(data, { contextId, taskId: task.id }));
    assert.deepEqual([done.id, done.status.state], [task.id, TaskState.TASK_STATE_COMPLETED]);
    const { outcomes } = await (await native(`/v1/sessions/${contextId}/turns/${task.id.split(".")[0]}`)).json();
    assert.ok(outcomes[approved ? "result" : "denied"], JSON.stringify(outcomes));
  }
});

test("a question is answered in words", async () => {
  const task = await client.sendMessage(says('/tool ask_user {"question": "Tea?"}'));
  const done = await client.sendMessage(says("With milk", { contextId: task.contextId, taskId: task.id }));
  assert.match(texts(done).join(), /With milk/);
});

test("a client that returns follows the task from its start", async () => {
  const first = await client.sendMessage(says("/slow 20 80", {}, { returnImmediately: true }));
  const found = await read(client.resubscribeTask({ id: first.id, tenant: "" }));
  assert.equal(found.states.at(-1), TaskState.TASK_STATE_COMPLETED);
  assert.equal([...found.texts.values()].join("").trim().split(/\s+/).length, 80);
});

test("a long task is canceled", async () => {
  const first = await client.sendMessage(says("/slow 50 900", {}, { returnImmediately: true }));
  const task = await client.cancelTask({ id: first.id, tenant: "", metadata: undefined });
  assert.equal(task.status.state, TaskState.TASK_STATE_CANCELED);
  await assert.rejects(client.cancelTask({ id: first.id, tenant: "", metadata: undefined }), /ended/);
});

test("errors", async () => {
  const failed = await client.sendMessage(says("/fail auth"));
  assert.equal(failed.status.state, TaskState.TASK_STATE_FAILED);
  const cut = await read(client.sendMessageStream(says("/fail cut")));
  assert.equal(cut.states.at(-1), TaskState.TASK_STATE_FAILED);
  await assert.rejects(client.getTask({ id: "trn_none.none", tenant: "" }), /no such task/);
  await assert.rejects(client.sendMessage(says("x".repeat((1 << 20) + 1))), /1 MiB/);
  const wrong = await connect("wrong");
  await assert.rejects(wrong.sendMessage(says("hi")), /key/i);
  await assert.rejects(connect(key, "/a2a/missing/"), /404/);
});

test("a tool of the server that takes seconds, whole and as a stream", async () => {
  const asks = () => says('/tool sleep {"ms": 4000}');
  const [whole, stream] = await Promise.all([client.sendMessage(asks()), read(client.sendMessageStream(asks()))]);
  assert.match(texts(whole).at(-1), /slept 4000 ms/);
  assert.match([...stream.texts.values()].at(-1), /slept 4000 ms/);
});

test("a client that returns in the middle of the text", async () => {
  let id;
  for await (const { payload } of client.sendMessageStream(says("/slow 20 80"))) {
    if (payload.$case === "task") id = payload.value.id;
    if (payload.$case === "artifactUpdate") break;
  }
  const found = await read(client.resubscribeTask({ id, tenant: "" }));
  assert.equal(found.states.at(-1), TaskState.TASK_STATE_COMPLETED);
  assert.equal([...found.texts.values()].join("").trim().split(/\s+/).length, 80);
});

test("a cancellation ends the stream", async () => {
  const states = [];
  let id, canceled;
  for await (const { payload } of client.sendMessageStream(says("/slow 50 900"))) {
    if (payload.$case === "task") id = payload.value.id;
    if (payload.$case === "artifactUpdate") canceled ??= client.cancelTask({ id, tenant: "", metadata: undefined });
    if (payload.$case === "statusUpdate") states.push(payload.value.status.state);
  }
  assert.equal((await canceled).status.state, TaskState.TASK_STATE_CANCELED);
  assert.equal(states.at(-1), TaskState.TASK_STATE_CANCELED);
});

test("a text of 900 kB is accepted", async () => {
  assert.deepEqual(texts(await client.sendMessage(says(`/say Seen\n${"x".repeat(900_000)}`))), ["Seen"]);
});
