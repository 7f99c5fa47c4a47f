// The client of A2A: gives the default agent a task, and prints the task's artifacts.
import { SendMessageRequest, TaskState } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory } from "@a2a-js/sdk/client";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const fetchImpl = (input, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("authorization", `Bearer ${key}`);
  return fetch(input, { ...init, headers });
};
const factory = new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl })] });
const client = await factory.createFromUrl(url);
const task = await client.sendMessage(SendMessageRequest.fromJSON({
  message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text: "Hello" }] },
}));
for (const { parts } of task.artifacts) console.log(parts.map((part) => part.content.value).join(""));
if (task.status.state !== TaskState.TASK_STATE_COMPLETED) throw new Error(TaskState[task.status.state]);
