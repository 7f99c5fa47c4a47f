// The client, as it is published, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { EdgeHarness, EdgeHarnessError } from "@edge-harness/client";
import { cuttingProxy } from "./proxy.mjs";

const { URL: url, KEY: key } = process.env;
const client = new EdgeHarness({ url, key });
const session = (own = client) => own.session(randomUUID());
/** A session in which every edit needs an approval. */
const careful = () => client.createSession({ permissions: { categories: { edit: "ask" } } });

async function all(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

const types = (events) => events.map((event) => event.type);
const streamed = (events) => events.map((event) => (event.type === "message.delta" ? event.delta : "")).join("");
const records = (events) => events.filter((event) => event.seq !== undefined).map((event) => event.seq);
const texts = (messages) => messages.map(({ role, parts }) => `${role}: ${parts.map((part) => part.text).join("")}`);

test("sessions: create, get, change, fork, list, delete", async () => {
  const user = randomUUID();
  const own = new EdgeHarness({ url, key, user });
  const first = await own.createSession({ title: "First" });
  await first.send("/say One").result();
  assert.equal((await first.update({ title: "Renamed", metadata: { team: "blue" } })).title, "Renamed");
  assert.deepEqual((await first.get()).metadata, { team: "blue" });
  const copy = await first.fork();
  assert.deepEqual(texts(await all(copy.messages())), ["user: /say One", "assistant: One"]);
  const third = await own.createSession();
  const page = await own.listSessions({ limit: 2 });
  assert.equal(page.data.length, 2);
  const listed = (await all(own.sessions())).map(({ id }) => id);
  assert.deepEqual(new Set(listed), new Set([first.id, copy.id, third.id]));
  await copy.delete();
  await assert.rejects(copy.get(), { code: "not_found", status: 404 });
});

test("a client with a user reaches only the sessions of that user", async () => {
  const [ann, bob] = ["ann", "bob"].map((name) => new EdgeHarness({ url, key, user: `${name}-${randomUUID()}` }));
  const { id } = await bob.createSession();
  const foreign = ann.session(id);
  const requests = {
    get: () => foreign.get(), view: () => foreign.view(), messages: () => all(foreign.messages()), update: () => foreign.update({ title: "x" }),
    send: () => foreign.send("hi").result(), approve: () => foreign.approve("call_1", "approve"), answer: () => foreign.answer("call_1", "x"),
    abort: () => foreign.abort(), attach: () => foreign.attach("x", { name: "x.txt", type: "text/plain" }), fork: () => foreign.fork(),
    follow: () => all(foreign.follow({ until: "idle" })), delete: () => foreign.delete(),
  };
  for (const [name, request] of Object.entries(requests)) await assert.rejects(request(), { code: "not_found" }, name);
  assert.equal((await bob.session(id).get()).id, id);
});

test("the inbox has the calls that wait in all sessions", async () => {
  const own = new EdgeHarness({ url, key, user: randomUUID() });
  const permissions = { tools: { echo: "ask" } };
  const sessions = [await own.createSession({ permissions }), await own.createSession({ permissions }), await own.createSession()];
  const turns = sessions.map((session, index) => session.send(`/tool echo {"text": "from ${index}"}`));
  assert.deepEqual((await Promise.all(turns.map((turn) => turn.result()))).map(({ status }) => status), ["waiting", "waiting", "completed"]);
  const inbox = async () => (await all(own.inbox())).map(({ session, call }) => `${session.id} ${call.args.text}`).sort();
  const expected = [`${sessions[0].id} from 0`, `${sessions[1].id} from 1`].sort();
  // The list of sessions is updated after the turn.
  while ((await inbox()).length < 2) await new Promise((done) => setTimeout(done, 100));
  assert.deepEqual(await inbox(), expected);
  for await (const { session, call } of own.inbox()) await session.approve(call.call_id, "approve", { args_hash: call.args_hash });
  assert.equal((await turns[0].result()).reply.text, "echo → from 0");
  assert.deepEqual(await inbox(), []);

  // The call of a subagent is in the subagent's session.
  const parent = await own.createSession({ permissions });
  const task = { agent: "general-purpose", task: '/tool echo {"text": "from below"}' };
  const turn = parent.send(`/tool subagent ${JSON.stringify(task)}`);
  assert.equal((await turn.result()).status, "waiting");
  while ((await inbox()).length < 1) await new Promise((done) => setTimeout(done, 100));
  for await (const { session, call } of own.inbox()) {
    assert.notEqual(session.id, parent.id);
    assert.equal(call.args.text, "from below");
    await session.approve(call.call_id, "approve", { args_hash: call.args_hash });
  }
  assert.equal((await turn.result()).status, "completed");
});

test("a queued message survives a lost connection", async (t) => {
  const id = randomUUID();
  const running = client.session(id).send("/slow 100 30");
  for await (const event of running) if (event.type === "message.delta") break;
  const proxy = await cuttingProxy(t, url);
  const queued = new EdgeHarness({ url: proxy.url, key }).session(id).send("/say Later");
  const result = queued.result();
  while (queued.id === undefined) await new Promise((resolve) => setTimeout(resolve, 10));
  proxy.cut();
  assert.equal((await result).reply.text, "Later");
});

test("a turn is a stream of typed events with a result", async () => {
  const turn = session().send('/think Hm.\n/tool echo {"text": "hi"}\n/then /say Done');
  const events = await all(turn);
  assert.equal(events[0].type, "turn.started");
  assert.equal(events.at(-1).type, "turn.completed");
  for (const type of ["reasoning.delta", "tool.started", "tool.completed", "message.completed"]) {
    assert.ok(types(events).includes(type), type);
  }
  const result = await turn.result();
  assert.equal(result.turn_id, turn.id);
  assert.deepEqual([result.status, result.stop_reason, result.reply.text], ["completed", "end", "Done"]);
});

test("a stream that is cut again and again has neither gap nor repeat, and its message is posted once", async (t) => {
  // The first connection is cut before the response, most others within an event.
  const proxy = await cuttingProxy(t, url, [1, 400, 1_101, 1, 902, 1_303, 700]);
  const own = session(new EdgeHarness({ url: proxy.url, key }));
  const turn = own.send("/slow 20 120");
  const events = await all(turn);
  const result = await turn.result();
  assert.ok(proxy.cuts >= 6, `${proxy.cuts} cuts`);
  assert.equal(streamed(events), result.reply.text);
  assert.equal(result.reply.text.trim().split(/\s+/).length, 120);
  const numbers = records(events);
  assert.deepEqual(numbers, [...new Set(numbers)].sort((a, b) => a - b));
  assert.equal(types(events).filter((type) => type === "turn.started").length, 1);
  assert.equal((await all(client.session(own.id).messages())).length, 2);
});

test("a message behind another one streams its own turn only", async (t) => {
  const own = session();
  const first = await own.post("/slow 10 30");
  const proxy = await cuttingProxy(t, url, [700]);
  const turn = new EdgeHarness({ url: proxy.url, key }).session(own.id).send("/say Second");
  const events = await all(turn);
  assert.ok(events.every((event) => event.turn === turn.id && event.turn !== first.turn_id));
  assert.equal((await turn.result()).reply.text, "Second");
});

test("follow: from the start, after an event, and across cuts", async (t) => {
  const own = session();
  await own.send("/say Hello").result();
  const events = await all(own.follow({ until: "idle" }));
  assert.deepEqual(records(events), events.filter(({ seq }) => seq).map((_, index) => index + 1));
  assert.deepEqual(records(await all(own.follow({ after: "3", until: "idle" }))), records(events).filter((seq) => seq > 3));

  const proxy = await cuttingProxy(t, url, [500, 900]);
  const states = [];
  const stop = new AbortController();
  const followed = [];
  const onConnection = (state) => states.push(state);
  await assert.rejects(async () => {
    for await (const event of new EdgeHarness({ url: proxy.url, key }).session(own.id).follow({ signal: stop.signal, onConnection })) {
      followed.push(event);
      if (event.seq === records(events).at(-1)) stop.abort(new Error("enough"));
    }
  }, /enough/);
  assert.deepEqual(records(followed), records(events));
  assert.deepEqual(states, ["open", "lost", "open", "lost", "open"]);
});

test("an approval: the same turn continues", async () => {
  const own = await careful();
  const turn = own.send('/tool write_file {"path": "a.txt", "content": "hi"}\n/then /say Written');
  const waiting = await turn.result();
  assert.equal(waiting.status, "waiting");
  const [call] = waiting.pending;
  assert.deepEqual([call.kind, call.name, call.args.path], ["approval", "write_file", "a.txt"]);
  await assert.rejects(own.approve(call.call_id, "approve", { args_hash: "0".repeat(64) }), { code: "stale_args_hash" });
  await own.approve(call.call_id, "approve", { args_hash: call.args_hash });
  const rest = await all(turn);
  assert.equal(rest.find((event) => event.type === "tool.completed").outcome, "result");
  assert.equal((await turn.result()).reply.text, "Written");
  // Elsewhere, from the start: the same events, up to the wait and then to the end.
  const other = own.turn(turn.id);
  assert.equal(types(await all(other)).at(-1), "turn.waiting");
  assert.deepEqual(records(await all(other)), records(rest));
});

test("a declined call: the model reads the reason", async () => {
  const own = await careful();
  const turn = own.send('/tool write_file {"path": "a.txt", "content": "hi"}');
  const { pending: [call] } = await turn.result();
  await own.decline(call.call_id, "not today");
  const outcome = (await all(turn)).find((event) => event.type === "tool.completed");
  assert.deepEqual([outcome.outcome, outcome.denied], ["denied", "declined"]);
  assert.match(JSON.stringify(outcome), /not today/);
});

test("a question and a tool of the client", async () => {
  const own = session();
  const turn = own.send('/tool ask_user {"question": "Which?", "options": [{"label": "red"}]}\n/then /tool camera {}', {
    client_tools: [{ name: "camera", parameters: { type: "object" } }],
  });
  const { pending: [question] } = await turn.result();
  assert.deepEqual([question.kind, question.payload.question], ["question", "Which?"]);
  await own.answer(question.call_id, "blue");
  const { pending: [camera] } = await turn.result();
  assert.deepEqual([camera.kind, camera.name], ["external", "camera"]);
  await own.fail(camera.call_id, "the camera is off");
  assert.match((await turn.result()).reply.text, /the camera is off/);
});

test("abort and steer", async () => {
  const own = session();
  const turn = own.send("/slow 50 900");
  let result;
  for await (const event of turn) if (event.type === "message.delta" && !result) result = own.abort();
  assert.equal((await result).aborted, true);
  assert.equal((await turn.result()).status, "canceled");
  assert.equal((await own.abort()).aborted, false);

  const slow = own.send("/slow 50 900");
  for await (const event of slow) if (event.type === "message.delta") break;
  const steered = await own.steer("/say Stop").result();
  assert.equal(steered.reply.text, "Stop");
  assert.equal((await slow.result()).status, "canceled");
});

test("the queue", async () => {
  const own = session();
  await own.post("/slow 50 900");
  const queued = await own.post("/say Later");
  assert.deepEqual((await own.view()).queue.map(({ id }) => id), [queued.turn_id]);
  await own.dequeue(queued.turn_id);
  assert.deepEqual((await own.get()).queue, []);
  await own.abort();
});

test("attachments and artifacts", async () => {
  const own = await client.createSession();
  const file = await own.attach(new Blob(["Tea at five."], { type: "text/plain" }), { name: "Zoë's note.txt" });
  assert.deepEqual([file.mime_type, file.bytes, file.name], ["text/plain", 12, "Zoë's note.txt"]);
  await own.send([{ type: "file", ref: file.ref }, { type: "text", text: "/say Thanks" }]).result();
  const [message] = await all(own.messages());
  assert.equal(message.parts[0].ref, file.ref);
  assert.equal(await (await own.artifact(file.ref)).text(), "Tea at five.");
  assert.equal(await (await own.artifact(file.ref, { range: "bytes=0-2" })).text(), "Tea");
});

test("WebSocket: events, commands, and a new connection", async (t) => {
  const own = await client.createSession();
  await own.send("/say Before").result();
  const { last_seq } = await own.get();
  // Requests over HTTP share connections, so only the WebSocket's own ones are cut.
  const http = await cuttingProxy(t, url, []);
  const proxy = await cuttingProxy(t, url);
  const Native = globalThis.WebSocket;
  globalThis.WebSocket = class extends Native {
    constructor(address) {
      super(address.replace(new URL(http.url).host, new URL(proxy.url).host));
    }
  };
  const socket = new EdgeHarness({ url: http.url, key }).session(own.id).socket({ after: String(last_seq) });
  const receipt = await socket.send("/slow 20 60");
  const events = [];
  const cutAt = ["word5 ", "word30 "];
  for await (const event of socket) {
    events.push(event);
    if (streamed(events).includes(cutAt[0])) {
      cutAt.shift();
      proxy.cut();
    }
    if (event.type === "turn.completed") break;
  }
  globalThis.WebSocket = Native;
  assert.ok(proxy.connections >= 2);
  assert.equal(events.at(-1).turn, receipt.turn_id);
  assert.equal(streamed(events), events.at(-1).reply.text);
  assert.deepEqual(records(events), Array.from({ length: records(events).length }, (_, index) => last_seq + 1 + index));
  await assert.rejects(socket.send(""), { code: "validation_failed" });
  assert.equal((await socket.abort()).aborted, false);
  socket.close();
  assert.deepEqual(await all(socket), []);
  await assert.rejects(socket.send("late"), { code: "connection_lost" });
});

test("WebSocket: a session that does not exist, and one that is deleted", async () => {
  await assert.rejects(all(session().socket()), { code: "not_found" });
  const own = await client.createSession();
  const socket = own.socket();
  await socket.abort();
  await own.delete();
  await assert.rejects(all(socket), { code: "not_found" });
});

test("errors have one form", async () => {
  const wrong = new EdgeHarness({ url, key: () => Promise.resolve("wrong") });
  for (const attempt of [
    () => wrong.createSession(),
    () => session(wrong).send("hi").result(),
    () => all(session(wrong).follow()),
    () => all(session(wrong).socket()),
  ]) {
    await assert.rejects(attempt, (error) => {
      assert.ok(error instanceof EdgeHarnessError);
      assert.deepEqual([error.code, error.status], ["unauthenticated", 401]);
      assert.ok(error.detail && error.requestId);
      return true;
    });
  }
  await assert.rejects(session().send("hi", { budget: { max_steps: -1 } }).result(), (error) => {
    assert.equal(error.errors[0].pointer, "/budget/max_steps");
    return error.code === "validation_failed";
  });
  const failed = await session().send("/fail auth").result();
  assert.deepEqual([failed.status, failed.error.code, failed.error.retryable], ["failed", "provider_auth", false]);
});

test("several tools at once, one that takes seconds, and an error after text", async () => {
  const turn = session().send('/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /tool sleep {"ms": 4000}');
  const outcomes = (await all(turn)).filter(({ type }) => type === "tool.completed").map(({ outcome }) => outcome);
  assert.deepEqual(outcomes, ["result", "result", "result"]);
  assert.match((await turn.result()).reply.text, /slept 4000 ms/);
  const events = await all(session().send("/fail cut"));
  assert.ok(streamed(events).length > 0);
  assert.equal(events.at(-1).type, "turn.failed");
});

test("an unknown agent, and big messages", async () => {
  const code = (expected) => (error) => error.code === expected;
  await assert.rejects(client.createSession({ agent: "missing" }), code("unknown_agent"));
  const big = await session().send(`/say Seen\n${"x".repeat(900_000)}`).result();
  assert.equal(big.reply.text, "Seen");
  await assert.rejects(session().send("x".repeat((1 << 20) + 1)).result(), (error) => /1 MiB/.test(error.detail));
});

test("a stream that its reader leaves ends; the turn does not", async () => {
  const own = session();
  const stop = new AbortController();
  const turn = own.send("/slow 20 40", { signal: stop.signal });
  await assert.rejects(async () => {
    for await (const event of turn) if (event.type === "message.delta") stop.abort(new Error("seen enough"));
  }, /seen enough/);
  assert.equal((await own.turn(turn.id).result()).status, "completed");
});
