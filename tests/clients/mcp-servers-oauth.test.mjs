// Agents of the real Worker, which URL and KEY name, with a server of MCP that needs OAuth and its authorization server.
// Both listen on SERVERS. PHASE is the test to run: those around a kill of the Worker need two, which share the file STATE.
import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { McpServer, createMcpHandler, inputRequired } from "@modelcontextprotocol/server";

const { URL: url, KEY: key, SERVERS: servers, PHASE: phase, STATE: state } = process.env;
const address = (path) => `http://${servers}${path}`;
const native = async (method, path, body, accept = "application/json") => {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", accept };
  const response = await fetch(`${url}${path}`, { method, headers, body: body && JSON.stringify(body), redirect: "manual" });
  return { status: response.status, text: await response.text() };
};

/** What the authorization server knows: codes, tokens, and its answers. */
const codes = new Map();
const access = new Map();
const refreshes = new Map();
const asked = [];
let consents = true;
let down = false;
let expires_in = 3600;
let issuer = address("/as");
const issue = (user) => {
  const [token, refresh_token] = ["access", "refresh"].map((kind) => `${kind}-${randomUUID()}`);
  access.set(token, user);
  refreshes.set(refresh_token, user);
  return { access_token: token, refresh_token, expires_in, token_type: "Bearer" };
};

const mcp = createMcpHandler(() => {
  const server = new McpServer({ name: "guarded", version: "1" });
  server.registerTool("whoami", {}, (context) => ({
    content: [{ type: "text", text: `user ${access.get(context.http.req.headers.get("authorization").slice(7))}` }],
  }));
  server.registerTool("ask", {}, ({ mcpReq: { inputResponses } }) => (
    inputResponses?.ok
      ? { content: [{ type: "text", text: inputResponses.ok.action }] }
      : inputRequired({ inputRequests: { ok: inputRequired.elicit({
        message: "Sure?", requestedSchema: { type: "object", properties: { ok: { type: "boolean" } } },
      }) } })
  ));
  return server;
}, { legacy: "reject" });

const server = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const { pathname, searchParams } = new URL(request.url, address("/"));
  asked.push(pathname);
  const send = (status, body) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  if (pathname === "/open" || pathname === "/guarded") {
    const token = request.headers.authorization?.slice(7);
    if (pathname === "/guarded" && !access.has(token)) {
      const metadata = address("/.well-known/oauth-protected-resource/guarded");
      return response.writeHead(401, { "www-authenticate": `Bearer resource_metadata="${metadata}", scope="crm"` }).end();
    }
    const init = { method: request.method, headers: request.headers, body: text || undefined };
    const answer = await mcp.fetch(new Request(address(pathname), init));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    for await (const chunk of answer.body ?? []) response.write(chunk);
    return response.end();
  }
  const form = new URLSearchParams(text);
  switch (pathname) {
    case "/.well-known/oauth-protected-resource/guarded":
      return send(200, { resource: address("/guarded"), authorization_servers: [address("/as")] });
    case "/.well-known/oauth-authorization-server/as":
      return send(200, {
        issuer: address("/as"), authorization_endpoint: address("/as/authorize"), token_endpoint: address("/as/token"),
        registration_endpoint: address("/as/register"), code_challenge_methods_supported: ["S256"],
        authorization_response_iss_parameter_supported: true, token_endpoint_auth_methods_supported: ["none"],
      });
    case "/as/register": return send(201, { client_id: "client-1", ...JSON.parse(text) });
    case "/as/authorize": {
      const asks = Object.fromEntries(searchParams);
      const back = new URL(asks.redirect_uri);
      const code = `code-${randomUUID()}`;
      codes.set(code, { ...asks, user: request.headers["x-user"] });
      back.search = new URLSearchParams({
        state: asks.state, iss: issuer, ...(consents ? { code } : { error: "access_denied" }),
      });
      return response.writeHead(302, { location: back.href }).end();
    }
    case "/as/token": {
      if (down) return send(503, {});
      if (form.get("resource") !== address("/guarded") || form.get("client_id") !== "client-1") return send(400, { error: "invalid_target" });
      const given = form.get("refresh_token");
      if (form.get("grant_type") === "refresh_token") {
        const user = refreshes.get(given);
        // A refresh token is valid once.
        refreshes.delete(given);
        return user ? send(200, issue(user)) : send(400, { error: "invalid_grant" });
      }
      const code = codes.get(form.get("code"));
      codes.delete(form.get("code"));
      const hash = createHash("sha256").update(form.get("code_verifier")).digest("base64url");
      const fits = code?.code_challenge === hash && code.redirect_uri === form.get("redirect_uri");
      return fits ? send(200, issue(code.user)) : send(400, { error: "invalid_grant" });
    }
    default: return send(404, {});
  }
});
before(() => new Promise((listening) => server.listen(Number(servers.split(":")[1]), servers.split(":")[0], listening)));
after(() => { server.closeAllConnections(); server.close(); });

const agent = async (name, path = "/guarded") => {
  const mcp_servers = { c: { url: address(path), ...(path === "/guarded" ? { auth: "oauth" } : {}) } };
  const pushed = await native("PUT", `/v1/agents/${name}`, { model: "demo/echo", mcp_servers });
  assert.equal(pushed.status, 201, pushed.text);
  return name;
};
const call = (name) => `/tool c__${name} {}`;
const say = async (session, of, user, content) => {
  const sent = await native("POST", `/v1/sessions/${session}/messages?agent=${of}`, { content, user });
  assert.equal(sent.status, 200, sent.text);
};
const events = async (session) => {
  const { text } = await native("GET", `/v1/sessions/${session}/events`, undefined, "application/x-ndjson");
  return text.trim().split("\n").map((line) => JSON.parse(line));
};
const outcomes = async (session) => (await events(session)).filter(({ type }) => type === "tool.completed");
const shown = async (session) => JSON.parse((await native("GET", `/v1/sessions/${session}`)).text);
const waiting = async (session, kind) => {
  const { pending } = await shown(session);
  assert.equal(pending[0]?.kind, kind, JSON.stringify([pending, await events(session)]));
  return pending[0];
};
/** Opens the page for consent as a user's browser does. Returns where the browser is sent. */
const open = async (page, user) => {
  const { headers } = await fetch(page, { redirect: "manual", headers: { "x-user": user } });
  return new URL(headers.get("location"));
};
const callback = async ({ search }) => {
  const response = await fetch(`${url}/v1/oauth/callback${search}`);
  const text = await response.text();
  return { status: response.status, text, code: text.match(/^Your code is ([0-9A-Z]{4}-[0-9A-Z]{4})\n/)?.[1] };
};
const answer = (session, { call_id, args_hash }, given) => (
  native("POST", `/v1/sessions/${session}/answers/${call_id}`, { answer: given, args_hash })
);
/** Answers a call with the code of the page, after which the turn ends. */
const confirm = async (session, wait, code) => {
  const { status, text } = await answer(session, wait, { action: "accept", content: { code } });
  assert.equal(status, 200, text);
  assert.equal((await shown(session)).status, "idle");
};
/** Connects a user in a new session, and returns the session. */
const connect = async (of, user) => {
  const session = `s-${randomUUID()}`;
  await say(session, of, user, call("connect"));
  const wait = await waiting(session, "auth");
  await confirm(session, wait, (await callback(await open(wait.payload.url, user))).code);
  return session;
};

if (phase === "all") {
  test("a user gives consent, and has the tools of the server from the next message on", async () => {
    const id = await agent("consent");
    const session = `s-${randomUUID()}`;
    await say(session, id, "ann", call("connect"));
    const wait = await waiting(session, "auth");
    const { payload } = wait;
    const page = new URL(payload.url);
    const { code_challenge_method, resource, scope, redirect_uri, state } = Object.fromEntries(page.searchParams);
    assert.deepEqual([code_challenge_method, resource, scope], ["S256", address("/guarded"), "crm"]);
    assert.equal(redirect_uri, "https://agents.example.com/v1/oauth/callback");
    assert.ok(state.length >= 43);
    const back = await open(payload.url, "ann");
    const { status, text, code } = await callback(back);
    assert.deepEqual([status, text.includes("with the user \"ann\"")], [200, true]);
    // The page alone connects no account.
    assert.equal((await waiting(session, "auth")).payload.url, payload.url);
    assert.ok(!asked.includes("/as/token"));
    await confirm(session, wait, ` ${code.toLowerCase()} `);
    assert.match((await outcomes(session))[0].result, /^Connected/);
    await say(session, id, "ann", call("whoami"));
    assert.equal((await outcomes(session)).at(-1).result, "user ann");
    // A state is valid once.
    assert.equal((await callback(back)).status, 401);
    assert.ok(!JSON.stringify(await events(session)).match(/(access|refresh|code)-[0-9a-f]/));
  });

  test("another user of the agent does not use the token", async () => {
    const id = await agent("users");
    await connect(id, "fay");
    // The user is connected with the server, for all agents.
    const own = `s-${randomUUID()}`;
    await say(own, await agent("users-2"), "fay", call("whoami"));
    assert.equal((await outcomes(own))[0].result, "user fay");
    const session = `s-${randomUUID()}`;
    await say(session, id, "bob", call("whoami"));
    assert.equal((await outcomes(session))[0].outcome, "denied");
    await say(session, id, "bob", call("connect"));
    await waiting(session, "auth");
  });

  test("a user who gives no consent declines the call", async () => {
    const id = await agent("denial");
    const session = `s-${randomUUID()}`;
    await say(session, id, "cay", call("connect"));
    consents = false;
    const wait = await waiting(session, "auth");
    const refused = await callback(await open(wait.payload.url, "cay"));
    consents = true;
    assert.deepEqual([refused.status, /has not given consent/.test(refused.text)], [400, true]);
    assert.equal((await answer(session, wait, { action: "decline" })).status, 200);
    const [{ outcome, denied }] = await outcomes(session);
    assert.deepEqual([outcome, denied], ["denied", "declined"]);
  });

  test("a code of another authorization server is not exchanged", async () => {
    const id = await agent("issuers");
    for (const iss of ["https://evil.example.com", address("/as/"), undefined]) {
      const session = `s-${randomUUID()}`;
      await say(session, id, "dan", call("connect"));
      const { payload } = await waiting(session, "auth");
      const back = await open(payload.url, "dan");
      if (iss) back.searchParams.set("iss", iss); else back.searchParams.delete("iss");
      const exchanges = asked.filter((path) => path === "/as/token").length;
      assert.equal((await callback(back)).status, 400);
      assert.equal(asked.filter((path) => path === "/as/token").length, exchanges);
    }
  });

  test("consent counts only in the session whose user has opened the page", async () => {
    const id = await agent("phishing");
    const [own, other] = [`s-${randomUUID()}`, `s-${randomUUID()}`];
    // The attacker sends the link of their session to a victim, who gives consent.
    await say(own, id, "mallory", call("connect"));
    const wait = await waiting(own, "auth");
    const { code } = await callback(await open(wait.payload.url, "victim"));
    await say(other, id, "peggy", call("connect"));
    const theirs = await waiting(other, "auth");
    // The code of the page is of no use elsewhere, and an attempt without it ends the request.
    for (const [session, before, given] of [[other, theirs, { code }], [own, wait, "0000-0000"]]) {
      assert.equal((await answer(session, before, given)).status, 200);
      const after = await waiting(session, "auth");
      assert.match(after.payload.question, /^That code is wrong/);
      assert.notEqual(after.payload.url, before.payload.url);
    }
    assert.equal((await answer(own, await waiting(own, "auth"), code)).status, 200);
    await waiting(own, "auth");
    assert.ok(![...access.values()].includes("victim"));
    const form = await answer(own, await waiting(own, "auth"), { action: "accept" });
    assert.equal(form.status, 422, form.text);
  });

  test("a failure of the authorization server can be repeated", async () => {
    const session = `s-${randomUUID()}`;
    await say(session, await agent("down"), "gus", call("connect"));
    const wait = await waiting(session, "auth");
    const { code } = await callback(await open(wait.payload.url, "gus"));
    down = true;
    assert.equal((await answer(session, wait, { code })).status, 200);
    down = false;
    const again = await waiting(session, "auth");
    assert.deepEqual([again.payload.url, /again/.test(again.payload.question)], [wait.payload.url, true]);
    await confirm(session, again, code);
    assert.match((await outcomes(session))[0].result, /^Connected/);
  });

  test("an unknown state is refused", async () => {
    assert.equal((await callback(new URL("http://x/?state=guess&code=a"))).status, 401);
    assert.equal((await callback(new URL("http://x/"))).status, 401);
  });

  test("a token that expires or is refused is refreshed, and then consent is needed again", async () => {
    const id = await agent("refresh");
    expires_in = 1;
    const session = await connect(id, "eve");
    expires_in = 3600;
    await say(session, id, "eve", call("whoami"));
    assert.equal((await outcomes(session)).at(-1).result, "user eve");
    access.clear();
    await say(session, id, "eve", call("whoami"));
    assert.equal((await outcomes(session)).at(-1).result, "user eve");
    access.clear();
    refreshes.clear();
    await say(session, id, "eve", call("whoami"));
    const wait = await waiting(session, "auth");
    await confirm(session, wait, (await callback(await open(wait.payload.url, "eve"))).code);
    assert.equal((await outcomes(session)).at(-1).result, "user eve");
  });

  test("the id of the client is the URL of its metadata", async () => {
    const metadata = await (await fetch(`${url}/client-metadata.json`)).json();
    assert.equal(metadata.client_id, "https://agents.example.com/client-metadata.json");
    assert.deepEqual(metadata.redirect_uris, ["https://agents.example.com/v1/oauth/callback"]);
  });

  test("a definition has no other credentials", async () => {
    const c = { url: address("/guarded?key=${secret:A}"), auth: "oauth", headers: { Authorization: "x" } };
    const d = { url: address("/open"), oauth_client: { id: "a", issuer: "x" } };
    const pushed = await native("PUT", "/v1/agents/refused", { mcp_servers: { c, d } });
    const pointers = JSON.parse(pushed.text).errors.map(({ pointer }) => pointer);
    const expected = ["/mcp_servers/c/url", "/mcp_servers/c/headers", "/mcp_servers/d/oauth_client"];
    assert.deepEqual(pointers, expected);
    const e = { url: address("/guarded"), auth: "oauth", oauth_client: { id: "a", issuer: "x" } };
    const of_client = await native("PUT", "/v1/agents/refused", { mcp_servers: { e } });
    assert.equal(JSON.parse(of_client.text).errors[0].pointer, "/mcp_servers/e/oauth_client/issuer");
  });
}

if (phase === "before a kill") {
  test("calls wait", async () => {
    const id = await agent("killed");
    await say("killed-auth", id, "ann", call("connect"));
    await say("killed-code", id, "bob", call("connect"));
    await say("killed-late", id, "ann", call("connect"));
    const other = await waiting("killed-late", "auth");
    const [early, late] = [await waiting("killed-auth", "auth"), await waiting("killed-code", "auth")];
    const { code } = await callback(await open(late.payload.url, "bob"));
    writeFileSync(state, JSON.stringify({ early, late, other, code, codes: [...codes] }));
    await say("killed-question", await agent("killed-open", "/open"), "ann", call("ask"));
    await waiting("killed-question", "question");
  });
}

if (phase === "after a kill") {
  test("calls that waited continue", async () => {
    const { early, late, other, code, codes: before } = JSON.parse(readFileSync(state, "utf8"));
    before.forEach(([name, asks]) => codes.set(name, asks));
    const { code: own } = await callback(await open(early.payload.url, "ann"));
    for (const [session, wait, given] of [["killed-auth", early, own], ["killed-code", late, code]]) {
      await confirm(session, wait, given);
      assert.match((await outcomes(session))[0].result, /^Connected/);
    }
    // The user is connected by the other session, so this one does not need its code any more.
    await confirm("killed-late", other, "0000-0000");
    assert.match((await outcomes("killed-late"))[0].result, /^Connected/);
    const { call_id } = await waiting("killed-question", "question");
    const answered = await native("POST", `/v1/sessions/killed-question/answers/${call_id}`, { answer: { ok: true } });
    assert.equal(answered.status, 200, answered.text);
    assert.equal((await outcomes("killed-question"))[0].result, "accept");
  });
}
