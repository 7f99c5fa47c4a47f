// The page in a real browser, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";
import { EdgeHarness } from "../../clients/ts/dist/index.js";
import { cuttingProxy } from "../../clients/ts/test/proxy.mjs";
import { DESKTOP, launch, PHONE } from "./browser.mjs";

const { URL: url, KEY: key } = process.env;
const client = new EdgeHarness({ url, key });
let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Opens the page, signed in unless `at` is another address. The test fails if the page reports an error that is not `expected`. */
async function open(t, { at = `${url}/#key=${key}`, expected = /status of 4\d\d|ERR_/, ...options } = {}) {
  const context = await browser.newContext({ ...DESKTOP, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (line) => line.type() === "error" && !expected.test(line.text()) && faults.push(line.text()));
  page.on("dialog", (dialog) => faults.push(dialog.message()));
  await page.goto(at);
  t.after(async () => {
    await context.close();
    assert.deepEqual(faults, []);
  });
  return page;
}

/** Opens a session in the page. */
async function openSession(t, session, options = {}) {
  const page = await open(t, options);
  await page.getByLabel("Message").waitFor();
  await page.evaluate((id) => (location.hash = `#/chat/${id}`), session.id);
  return page;
}

async function say(page, text) {
  await page.getByLabel("Message").fill(text);
  await page.keyboard.press("Enter");
}

const replies = (page) => page.locator(".assistant .markdown");
const idle = (page) => page.locator(".stop").waitFor({ state: "detached" });
/** Waits until an element has this text. */
const shows = (page, text) => page.getByText(text).first().waitFor();

async function accessible(page, place) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  assert.deepEqual(found, [], place);
}

test("a user enters a key, which stays in this tab, or on the device if the user wants so", async (t) => {
  const page = await open(t, { at: url });
  await accessible(page, "the key page");
  await page.getByLabel("Key", { exact: true }).fill("wrong");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("alert").filter({ hasText: "unauthenticated" }).waitFor();
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByLabel("Message").waitFor();
  const kept = () => page.evaluate(() => [Object.values(sessionStorage), Object.values(localStorage)]);
  assert.deepEqual(await kept(), [[key], []]);
  await page.getByRole("button", { name: "Forget the key" }).click();
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByLabel("Remember").check();
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByLabel("Message").waitFor();
  assert.deepEqual(await kept(), [[], [key]]);
});

test("the key in the address is taken and removed", async (t) => {
  const page = await open(t);
  await page.getByLabel("Message").waitFor();
  assert.equal(await page.evaluate(() => location.href), `${url}/`);
});

for (const [name, size] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
  test(`a new chat on a ${name}: a streamed reply with Markdown, a tool, the list of sessions`, async (t) => {
    const page = await open(t, size);
    const title = `Chat ${randomUUID()}`;
    await page.getByLabel("Message").waitFor();
    await accessible(page, "a new chat");
    await say(page, `/say ${title}\n/tool echo {"text": "hi"}\n/then /say # Done\n/say It is **bold**, \`code\` and [a link](https://example.com/).`);
    await page.getByRole("heading", { name: "Done" }).waitFor();
    assert.equal(await page.locator(".markdown strong").innerText(), "bold");
    const link = page.getByRole("link", { name: "a link" });
    assert.deepEqual([await link.getAttribute("target"), await link.getAttribute("rel")], ["_blank", "noopener noreferrer nofollow"]);
    await page.locator(".tool-card", { hasText: "echo" }).locator("summary").click();
    assert.match(await page.locator(".tool-card").innerText(), /"text": "hi"[\s\S]*Result\s*hi/);
    await idle(page);
    await accessible(page, "a conversation");
    if (size === PHONE) {
      const menu = page.getByRole("button", { name: "Sessions" });
      await menu.click();
      await page.keyboard.press("Escape");
      assert.equal(await menu.evaluate((own) => own === document.activeElement && own.ariaExpanded), "false");
      await menu.click();
      assert.equal(await page.evaluate(() => document.activeElement.textContent), "New chat");
    }
    const entry = page.getByRole("navigation").getByRole("link", { name: title });
    await entry.waitFor();
    await accessible(page, "the list of sessions");
    await page.getByRole("navigation").getByRole("link", { name: "New chat" }).click();
    await page.getByRole("heading", { name: "What can I do for you?" }).waitFor();
    if (size === PHONE) await page.getByRole("button", { name: "Sessions" }).click();
    await page.getByRole("button", { name: new RegExp(`Delete .*${title}`) }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await entry.waitFor({ state: "detached" });
    const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.equal(width, 0, "the page is wider than the screen");
  });

  test(`approvals on a ${name}: approve, decline with a reason, always`, async (t) => {
    const session = await client.createSession({ permissions: { categories: { edit: "ask" } } });
    const page = await openSession(t, session, size);
    const write = (path) => say(page, `/tool write_file {"path": "${path}-${session.id}", "content": "hi"}`);
    await write("a");
    const approval = page.getByRole("region", { name: "Approval of write_file" });
    await approval.getByText('"content": "hi"').waitFor();
    await accessible(page, "an approval");
    await approval.getByRole("button", { name: "Approve" }).click();
    await page.getByText("approved", { exact: true }).waitFor();
    await idle(page);

    await write("b");
    await approval.getByRole("button", { name: "Decline…" }).click();
    await page.keyboard.type("not today");
    await accessible(page, "a reason");
    await page.keyboard.press("Enter");
    await shows(page, "declined: not today");
    await idle(page);

    await write("c");
    await approval.getByRole("button", { name: "Always allow write_file" }).click();
    await shows(page, "always allowed");
    await idle(page);
    await write("d");
    await idle(page);
    await page.locator(".tool-card.good").nth(2).waitFor();
    const calls = [];
    for await (const event of session.follow({ until: "idle" })) if (event.type === "tool.completed") calls.push(event.outcome);
    assert.deepEqual(calls, ["result", "denied", "result", "result"]);
  });
}

test("a call of a subagent is approved in the session that started it", async (t) => {
  const page = await openSession(t, await client.createSession({ permissions: { tools: { echo: "ask" } } }));
  const task = '/tool echo {"text": "from the child"}\n/then /say Child done';
  await say(page, `/tool subagent ${JSON.stringify({ agent: "general-purpose", task })}\n/then /say All done`);
  const approval = page.getByRole("region", { name: "Approval of echo" });
  await approval.getByText('"text": "from the child"').waitFor();
  await accessible(page, "an approval of a subagent");
  await approval.getByRole("button", { name: "Approve" }).click();
  await approval.waitFor({ state: "detached" });
  await page.locator(".assistant", { hasText: "All done" }).waitFor();
  await page.locator(".tool-card", { hasText: "subagent" }).locator("summary").click();
  await page.getByRole("link", { name: "Session of the subagent" }).click();
  await page.locator(".assistant", { hasText: "Child done" }).waitFor();
});

test("questions: an option, free text, several options", async (t) => {
  const page = await openSession(t, await client.createSession());
  const ask = (more) => say(page, `/tool ask_user {"question": "Which **color**?", "options": [{"label": "red", "description": "like fire"}, {"label": "blue"}]${more}}`);
  const form = page.getByRole("form", { name: "Which color?" });
  await ask("");
  await form.waitFor();
  await accessible(page, "a question");
  await form.getByRole("button", { name: "red", exact: true }).click();
  await page.locator(".assistant", { hasText: "User answered: red" }).waitFor();
  await page.getByText("answered: red", { exact: true }).waitFor();
  await ask("");
  await form.getByLabel("Your answer").fill("green");
  await page.keyboard.press("Enter");
  await page.locator(".assistant", { hasText: "User answered: green" }).waitFor();
  await ask(', "selection_mode": "multi"');
  await form.getByLabel("red").check();
  await form.getByLabel("blue").check();
  await form.getByRole("button", { name: "Answer" }).click();
  await page.locator(".assistant", { hasText: "User answered: red, blue" }).waitFor();
});

test("a plan is approved, tasks and the mode are shown", async (t) => {
  const page = await openSession(t, await client.createSession());
  await say(page, '/tool plan_enter {}\n/then /tool plan_write {"content": "# The plan\\n1. Look."}\n/then /tool plan_exit {}\n/then /tool task_write {"tasks": [{"content": "Look", "status": "in_progress", "active_form": "Looking"}]}\n/then /say Done');
  await page.getByRole("region", { name: "The plan" }).getByText("# The plan").waitFor();
  assert.equal(await page.getByLabel("Mode").inputValue(), "plan");
  await accessible(page, "a plan");
  await page.getByRole("button", { name: "Approve the plan" }).click();
  await shows(page, "Tasks: 0 of 1 · Looking");
  await idle(page);
  assert.equal(await page.getByLabel("Mode").inputValue(), "build");
  await page.getByLabel("Mode").selectOption("plan");
  await shows(page, "The mode is now “plan”.");
});

test("the modes are those of the agent", async (t) => {
  const agent = `modes-${randomUUID().slice(0, 8)}`;
  const modes = [
    { id: "draft", name: "Draft", default: true, transitions_to: ["final"] }, { id: "final", name: "Final" }, { id: "hidden" },
  ];
  await client.request("PUT", `/v1/agents/${agent}`, { json: { instructions: "Be brief.", modes } });
  const page = await openSession(t, await client.createSession({ agent }));
  const mode = page.getByLabel("Mode");
  await page.locator(".mode option").getByText("Draft", { exact: true }).waitFor({ state: "attached" });
  assert.deepEqual(await mode.locator("option").allTextContents(), ["Draft", "Final"]);
  await mode.selectOption("final");
  await shows(page, "The mode is now “final”.");
  assert.deepEqual(await mode.locator("option").allTextContents(), ["Draft", "Final", "hidden"]);
  await client.request("DELETE", `/v1/agents/${agent}`);
});

test("background tasks are listed and canceled", async (t) => {
  const session = await client.createSession({ permissions: { tools: { current_time: "ask" } } });
  const page = await openSession(t, session);
  const spawn = (task, label) => `/tool agent_spawn ${JSON.stringify({ agent_id: "general-purpose", task, label, timeout_seconds: 0 })}`;
  await say(page, [spawn("/say soon", "Quick"), spawn('/tool sleep {"ms": 60000}', "Slow")].join("\n"));
  const listed = (name) => page.locator(".background li").filter({ hasText: name });
  await listed("Quick").getByText("completed").waitFor();
  await listed("Slow").getByText("running").waitFor();
  await shows(page, "Background tasks: 1 of 2 in progress");
  await accessible(page, "background tasks");
  await page.getByRole("button", { name: "Cancel Slow" }).click();
  // The list closes when nothing is in progress.
  await shows(page, "Background tasks: 0 of 2 in progress");
  await page.reload();
  await page.locator(".background summary").click();
  await listed("Slow").getByText("canceled").waitFor();
  await say(page, spawn("/tool current_time {}", "Careful"));
  await listed("Careful").getByText("waits for you").waitFor();
  await page.getByRole("link", { name: "Careful" }).click();
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await idle(page);
});

test("a running turn: queue, remove, interrupt, stop", async (t) => {
  const session = await client.createSession();
  const page = await openSession(t, session);
  await say(page, "/slow 50 900");
  await shows(page, /word5/);
  await say(page, "/say Later");
  await shows(page, "In the queue");
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByText("In the queue").waitFor({ state: "detached" });
  await page.getByLabel("Message").fill("/say Now\n/slow 50 900");
  await page.getByRole("button", { name: "Interrupt" }).click();
  await page.locator(".assistant", { hasText: "Now" }).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await idle(page);
  await page.locator(".notice", { hasText: "Stopped." }).nth(1).waitFor();
  assert.equal(await page.locator(".notice").count(), 2);
  assert.equal((await session.get()).status, "idle");
});

test("a reload in the middle of a reply loses and repeats nothing", async (t) => {
  const page = await openSession(t, await client.createSession());
  await say(page, "/slow 40 80");
  await shows(page, /word10 /);
  await page.reload();
  await shows(page, /word10 /);
  await shows(page, /word80/);
  const words = (await replies(page).innerText()).trim().split(/\s+/);
  assert.deepEqual(words, Array.from({ length: 80 }, (_, index) => `word${index + 1}`));
});

test("a lost connection in the middle of a reply loses and repeats nothing", async (t) => {
  const proxy = await cuttingProxy(t, url);
  const page = await openSession(t, await client.createSession(), { at: `${proxy.url}/#key=${key}` });
  await say(page, "/slow 40 80");
  for (const word of ["word10 ", "word40 "]) {
    await shows(page, new RegExp(word));
    proxy.cut();
  }
  await shows(page, /word80/);
  const words = (await replies(page).innerText()).trim().split(/\s+/);
  assert.deepEqual(words, Array.from({ length: 80 }, (_, index) => `word${index + 1}`));
});

test("files: attached, shown, and downloaded as they are", async (t) => {
  const page = await open(t);
  const name = "Zoë's note.html";
  const content = "<script>alert(1)</script>";
  await page.getByLabel("Attach files").setInputFiles({ name, mimeType: "text/html", buffer: Buffer.from(content) });
  await page.getByRole("button", { name: `Remove ${name}` }).waitFor();
  await page.getByRole("img", { name: "is uploaded" }).waitFor({ state: "detached" });
  await say(page, "/say Thanks");
  const file = page.getByRole("button", { name: new RegExp(name) });
  const [download] = await Promise.all([page.waitForEvent("download"), file.click()]);
  assert.equal(download.suggestedFilename(), name);
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  assert.equal(Buffer.concat(chunks).toString(), content);
});

test("errors are shown, and a failed turn can be tried again", async (t) => {
  const page = await openSession(t, await client.createSession());
  await say(page, "/fail 500");
  await shows(page, /The turn failed: .*provider_unavailable/);
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator(".notice.error").nth(1).waitFor();
  await page.evaluate(() => (location.hash = "#/chat/no-such-session"));
  await page.getByRole("alert").filter({ hasText: "not_found" }).waitFor();
  await accessible(page, "an error");
});

test("the page works in the dark, and without a mouse", async (t) => {
  const page = await openSession(t, await client.createSession(), { colorScheme: "dark" });
  await say(page, '/tool ask_user {"question": "Which?", "options": [{"label": "red"}]}');
  await page.getByRole("button", { name: "red", exact: true }).waitFor();
  await accessible(page, "in the dark");
  await page.getByRole("button", { name: "red", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.locator(".assistant", { hasText: "User answered: red" }).waitFor();
  await page.getByRole("status").filter({ hasText: "User answered: red" }).waitFor();
});

const HOSTILE = [
  "<img src=x onerror=pwned()>", "<svg onload=pwned()>", "<svg><script>pwned()</script></svg>", "<script>pwned()</script>",
  "<iframe srcdoc='<script>parent.pwned()</script>'></iframe>", "<a href='javascript:pwned()'>html</a>", "[js](javascript:pwned())",
  "[data](data:text/html,<script>pwned()</script>)", "<javascript:pwned()>", "![i](x\" onerror=\"pwned())", "![remote](https://example.com/pixel.png)",
  "<form action='javascript:pwned()'><button id=go>go</button></form>", "<style>*{display:none}</style>", "<p style='position:fixed;inset:0' id=app class=primary>x</p>",
  "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=pwned()&gt;'>", "<details open ontoggle=pwned()>", "<input autofocus onfocus=pwned()>",
  "<form><math><mtext></form><form><mglyph><svg><mtext><style><path id='</style><img onerror=pwned() src>'>", "<base href='https://example.com/'>",
  "`<img src=x onerror=pwned()>`", "<object data='javascript:pwned()'></object>", "<meta http-equiv=refresh content='0;url=https://example.com'>",
];

/** The sanitizer parses in a document in which nothing runs; the browser reports what the policy would block there. */
const BLOCKED = /Content Security Policy directive/;

for (const bypassCSP of [false, true]) {
  test(`hostile content runs nothing ${bypassCSP ? "even without" : "with"} the policy`, async (t) => {
    const session = await client.createSession({ title: "<img src=x onerror=pwned()>", permissions: { tools: { echo: "ask" } } });
    const name = "<img src=x onerror=pwned()>.html";
    const { ref } = await session.attach("hi", { name, type: "text/html" });
    // As the user's text, as the reply, as arguments of a call, and as a question with options.
    const markup = HOSTILE.join("\n\n");
    const say = HOSTILE.map((line) => `/say ${line}\n/say &nbsp;`).join("\n");
    const question = JSON.stringify({ question: markup, options: HOSTILE.slice(0, 5).map((label) => ({ label, description: label })) });
    await session.send([{ type: "file", ref }, { type: "text", text: `${say}\n/then /say x` }]).result();
    await session.send(`/tool ask_user ${question}\n/tool echo ${JSON.stringify({ text: markup })}`).result();

    const page = await open(t, { at: "about:blank", bypassCSP, expected: BLOCKED });
    await page.addInitScript(() => {
      window.ran = 0;
      window.pwned = () => window.ran++;
    });
    const requests = [];
    page.on("request", (request) => requests.push(new URL(request.url()).origin));
    await page.goto(`${url}/#key=${key}`);
    await page.getByLabel("Message").waitFor();
    await page.evaluate((id) => (location.hash = `#/chat/${id}`), session.id);
    await page.locator(".waiting form, form.waiting").first().waitFor();
    await page.locator(".file", { hasText: name }).waitFor();
    for (const summary of await page.locator(".tool-card summary").all()) await summary.click();
    for (const link of await page.locator(".markdown a").all()) assert.match(await link.getAttribute("href") ?? "", /^(https?:|mailto:|$)/);
    const foreign = "img, svg, script, iframe, object, embed, style, math, base, meta, .markdown [style], .markdown [id], .markdown [class], .markdown form, .markdown input";
    assert.deepEqual(await page.locator(`#app :is(${foreign})`).evaluateAll((all) => all.map((one) => one.outerHTML)), []);
    assert.equal(await page.evaluate(() => window.ran), 0);
    assert.deepEqual([...new Set(requests)], [url]);
    assert.ok(await page.getByLabel("Message").isVisible());
  });
}

test("the page's policy allows its own scripts only, and the API keeps its errors", async () => {
  const page = await fetch(url);
  const policy = page.headers.get("content-security-policy");
  for (const rule of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]) {
    assert.ok(policy.split("; ").includes(rule), rule);
  }
  assert.doesNotMatch(policy, /unsafe|data:|blob:|\*/);
  assert.equal(page.headers.get("x-content-type-options"), "nosniff");
  assert.doesNotMatch(await page.text(), /<script>|<style>|\son\w+=/);
  const missing = await fetch(`${url}/v1/missing`);
  assert.deepEqual([missing.status, missing.headers.get("content-type")], [404, "application/problem+json"]);
  assert.equal((await missing.json()).code, "not_found");
});
