// The official clients of both eras of MCP against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import * as modern from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { connectTasks } from "./mcp-tasks.mjs";
import { until } from "./until.mjs";

const { URL: url, KEY: key } = process.env;
const headers = (credential) => ({ authorization: `Bearer ${credential}` });
const native = (path, init = {}) => fetch(`${url}${path}`, {
  ...init, headers: { ...headers(key), "content-type": "application/json", ...init.headers },
});
const turn = async ({ session, turn }) => (await native(`/v1/sessions/${session}/turns/${turn}`)).json();
const text = (result) => result.content[0].text;
const info = { name: "test", version: "1" };

/** The clients: how each connects, calls ask_agent, and answers forms. */
const eras = {
  "sdk 1.x, 2025-11-25": async ({ credential = key, form, path = "/mcp" } = {}) => {
    const client = new Client(info, { capabilities: form ? { elicitation: {} } : {} });
    if (form) client.setRequestHandler(ElicitRequestSchema, ({ params }) => form(params));
    await client.connect(new StreamableHTTPClientTransport(new URL(`${url}${path}`), {
      requestInit: { headers: headers(credential) },
    }));
    const call = (args, options = {}) => client.callTool({ name: "ask_agent", arguments: args }, undefined, options);
    return { client, call };
  },
  "client 2.x, 2026-07-28": async ({ credential = key, form, path = "/mcp" } = {}) => {
    const client = new modern.Client(info, {
      capabilities: form ? { elicitation: { form: {} } } : {}, versionNegotiation: { mode: { pin: "2026-07-28" } },
    });
    if (form) client.setRequestHandler("elicitation/create", ({ params }) => form(params));
    await client.connect(new modern.StreamableHTTPClientTransport(new URL(`${url}${path}`), {
      requestInit: { headers: headers(credential) },
    }));
    return { client, call: (args, options = {}) => client.callTool({ name: "ask_agent", arguments: args }, options) };
  },
};

for (const [era, connect] of Object.entries(eras)) {
  test(`${era}: tools, resources and prompts`, async () => {
    const { client } = await connect();
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name).filter((name) => !name.startsWith("ask_agent_")),
      ["ask_agent", "search_memory"]);
    const name = `notes/${randomUUID()} ü.md`;
    await native(`/v1/workspace/files/${encodeURIComponent(name)}`, { method: "PUT", body: "# Hi" });
    let cursor, found;
    do {
      const page = await client.listResources({ cursor });
      found ??= page.resources.find((resource) => resource.name === name);
      cursor = page.nextCursor;
    } while (!found && cursor);
    assert.equal((await client.readResource({ uri: found.uri })).contents[0].text, "# Hi");
    await assert.rejects(client.readResource({ uri: "workspace://default/none" }), /not found/i);
    assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 1);
    assert.ok((await client.listPrompts()).prompts.some((prompt) => prompt.name === "plan"));
    const prompt = await client.getPrompt({ name: "plan", arguments: { task: "Move house." } });
    assert.match(prompt.messages[0].content.text, /plan mode[\s\S]*Move house\.$/);
    await client.close();
  });

  test(`${era}: a call, and a second one in the same session`, async () => {
    const { client, call } = await connect();
    await client.listTools();
    const first = await call({ message: "/say Hello" });
    assert.equal(text(first), "Hello");
    const { session, status } = first.structuredContent;
    assert.equal(status, "completed");
    const second = await call({ message: '/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /say Done', session });
    assert.deepEqual([text(second), second.structuredContent.session], ["Done", session]);
    const { data } = await (await native(`/v1/sessions/${session}/messages`)).json();
    assert.equal(data.filter((message) => message.role === "user").length, 2);
    await client.close();
  });

  test(`${era}: memory`, async () => {
    const { client } = await connect();
    const word = `w${randomUUID().replaceAll("-", "")}`;
    await native("/v1/memory", { method: "POST", body: JSON.stringify({ facts: [{ text: `The word is ${word}.` }] }) });
    const search = { name: "search_memory", arguments: { query: word } };
    assert.match(text(await client.callTool(search)), new RegExp(word));
    await client.close();
  });

  test(`${era}: progress`, async () => {
    const { client, call } = await connect();
    const seen = [];
    const message = '/tool echo {"text": "a"}\n/then /slow 5 120';
    const result = await call({ message }, { onprogress: (progress) => void seen.push(progress) });
    assert.equal(text(result).trim().split(/\s+/).length, 120);
    assert.equal(seen[0].message, "Calls echo.");
    assert.ok(seen.length > 3);
    assert.ok(seen.every((progress, index) => index === 0 || progress.progress > seen[index - 1].progress));
    await client.close();
  });

  test(`${era}: cancellation`, async () => {
    const { client, call } = await connect();
    const cancel = new AbortController();
    let started;
    const message = '/tool echo {"text": "a"}\n/then /slow 50 900';
    const running = call({ message, ...(era.includes("2026") ? { session: started = `s-${randomUUID()}` } : {}) },
      { signal: cancel.signal, onprogress: () => cancel.abort("enough") });
    await assert.rejects(running, /enough|abort/i);
    started ??= client.transport.sessionId;
    const ended = await until(async () => {
      const { status, ...session } = await (await native(`/v1/sessions/${started}`)).json();
      return status === "idle" && session;
    });
    assert.ok(ended);
    const events = await (await native(`/v1/sessions/${started}/events`, { headers: { accept: "application/x-ndjson" } })).text();
    assert.match(events, /"type":"turn.canceled"/);
    await client.close();
  });

  test(`${era}: an approval, a refusal and a question`, async () => {
    const forms = [];
    let answer;
    const form = (params) => {
      forms.push(params);
      return answer;
    };
    const { client, call } = await connect({ form });
    const { session } = (await call({ message: "/say hi" })).structuredContent;
    await native(`/v1/sessions/${session}`, {
      method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }),
    });
    answer = { action: "accept", content: { approved: true } };
    const approved = await call({ message: '/tool echo {"text": "a"}\n/then /say Done', session });
    assert.equal(text(approved), "Done");
    assert.match(forms[0].message, /echo[\s\S]*"text":"a"/);
    answer = { action: "decline" };
    const declined = await call({ message: '/tool echo {"text": "b"}\n/then /say Fine', session });
    assert.equal(text(declined), "Fine");
    const outcomes = (await turn(declined.structuredContent)).calls.map((own) => own.outcome);
    assert.deepEqual(outcomes, ["denied"]);
    answer = { action: "accept", content: { answer: "Tea" } };
    const asked = await call({ message: '/tool ask_user {"question": "Which?"}', session });
    assert.match(text(asked), /Tea/);
    assert.equal(forms.length, 3);
    await client.close();
  });

  test(`${era}: without forms, the text says what waits`, async () => {
    const { client, call } = await connect();
    const waiting = await call({ message: '/tool ask_user {"question": "Which?"}' });
    assert.match(text(waiting), /waits for a decision or an answer: ask_user/);
    assert.equal(waiting.structuredContent.status, "waiting");
    await client.close();
  });

  test(`${era}: errors`, async () => {
    const { client, call } = await connect();
    const failed = await call({ message: "/fail auth" });
    assert.deepEqual([failed.isError, failed.structuredContent.status], [true, "failed"]);
    const invalid = await call({ message: "" });
    assert.equal(invalid.isError, true);
    const huge = await call({ message: "x".repeat((1 << 20) + 1) });
    assert.match(text(huge), /at most 1048576/);
    await assert.rejects(client.callTool({ name: "none", arguments: {} }), /unknown tool/);
    await assert.rejects(connect({ credential: "wrong" }), /401|not valid|unauthorized/i);
    await client.close();
  });
}

test("client 2.x negotiates the modern era, and falls back for a legacy one", async () => {
  for (const [mode, expected] of [["auto", "2026-07-28"], ["legacy", "2025-11-25"]]) {
    const client = new modern.Client(info, { versionNegotiation: { mode } });
    const transport = new modern.StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
      requestInit: { headers: headers(key) },
    });
    await client.connect(transport);
    assert.equal(client.getNegotiatedProtocolVersion(), expected);
    assert.equal(text(await client.callTool({ name: "ask_agent", arguments: { message: "/say Hi" } })), "Hi");
    await client.close();
  }
});

test("a user, named in the address", async () => {
  const user = randomUUID();
  const { client, call } = await eras["client 2.x, 2026-07-28"]({ path: `/mcp?user=${user}` });
  const { session } = (await call({ message: "/say hi" })).structuredContent;
  assert.equal((await (await native(`/v1/sessions/${session}?user=${user}`)).json()).user, user);
  await client.close();
});

for (const [era, connect] of Object.entries(eras)) {
  test(`${era}: a tool of the agent that takes seconds`, async () => {
    const { client, call } = await connect();
    assert.match(text(await call({ message: '/tool sleep {"ms": 4000}' })), /slept 4000 ms/);
    await client.close();
  });

  test(`${era}: an error after text`, async () => {
    const { client, call } = await connect();
    const failed = await call({ message: "/fail cut" });
    assert.deepEqual([failed.isError, failed.structuredContent.status], [true, "failed"]);
    await client.close();
  });

  test(`${era}: a text of 900 kB is accepted`, async () => {
    const { client, call } = await connect();
    assert.equal(text(await call({ message: `/say Seen\n${"x".repeat(900_000)}` })), "Seen");
    await client.close();
  });

  test(`${era}: an agent that does not exist`, async () => {
    const { client } = await connect();
    await assert.rejects(client.callTool({ name: "ask_agent_missing", arguments: { message: "hi" } }), /unknown tool/);
    await client.close();
  });
}
test("ext-tasks, 2026-07-28: tasks", async () => {
  const forms = [];
  const { client, tasks, call } = await connectTasks((params) => {
    forms.push(params.message);
    return { action: "accept", content: { answer: "Tea" } };
  });
  const run = async (message) => {
    const execution = await call({ message });
    assert.equal(execution.kind, "task");
    const { outcome } = await execution.settle();
    assert.equal(outcome.status, "completed", outcome.error?.message);
    return outcome.result;
  };
  const reply = await run("/say Hello");
  assert.deepEqual([text(reply), reply.structuredContent.status], ["Hello", "completed"]);
  assert.match(text(await run('/tool ask_user {"question": "Which?"}')), /Tea/);
  assert.deepEqual(forms, ["Which?"]);
  assert.equal((await run("/fail auth")).isError, true);
  const begun = await call({ message: "/slow 50 20" });
  const other = await connectTasks();
  const resumed = await (await other.tasks.resumeTask(begun.serializeReference())).settle();
  assert.equal(resumed.outcome.status, "completed");
  await other.tasks.close();
  await other.client.close();
  const long = await call({ message: "/slow 50 900" });
  assert.equal((await tasks.task(long.handle.taskId).snapshot()).status, "working");
  await tasks.cancelTask(long.handle.taskId);
  assert.equal((await tasks.task(long.handle.taskId).snapshot()).status, "cancelled");
  assert.equal((await call({ message: "" })).kind, "immediate");
  await assert.rejects(tasks.task("trn_1.none").snapshot(), /unknown task/);
  await tasks.close();
  await client.close();
});

test("client 2.x, 2026-07-28: subscriptions", async () => {
  const { client } = await eras["client 2.x, 2026-07-28"]();
  const name = `watched-${randomUUID()}.md`, uri = `workspace://default/${name}`;
  const updated = [];
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => void updated.push(params.uri));
  const subscription = await client.listen({ resourceSubscriptions: [uri, "file:///none"], toolsListChanged: true });
  assert.deepEqual(subscription.honoredFilter, { resourceSubscriptions: [uri] });
  await native(`/v1/workspace/files/${name}`, { method: "PUT", body: "# Hi" });
  await until(() => updated.length > 0);
  assert.deepEqual(updated, [uri]);
  await subscription.close();
  await client.close();
});
