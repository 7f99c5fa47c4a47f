// `useChat` of `@ai-sdk/react`, rendered in a DOM, against the real Worker, which URL and KEY name.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { Window } from "happy-dom";

const { URL: url, KEY: key } = process.env;
const window = new Window({ url: "http://localhost/" });
// React looks for the DOM when it is loaded.
Object.assign(globalThis, { window, document: window.document, IS_REACT_ACT_ENVIRONMENT: true });
const { createElement, useEffect } = await import("react");
const { useChat } = await import("@ai-sdk/react");
const { act, cleanup, fireEvent, render, screen, waitFor } = await import("@testing-library/react");
const { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } =
  await import("ai");
after(() => window.happyDOM.close());

const headers = { authorization: `Bearer ${key}` };
const native = (path, init = {}) => fetch(`${url}${path}`, {
  ...init, headers: { ...headers, "content-type": "application/json", ...init.headers },
});
const patience = { timeout: 30_000 };

/** A page with a chat, as its users write it. */
function Page({ id, body = {}, files, onToolCall, credential = key, resume = false }) {
  const chat = useChat({
    id, resume,
    transport: new DefaultChatTransport({ api: `${url}/api/chat`, headers: { authorization: `Bearer ${credential}` }, body }),
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithToolCalls(state) || lastAssistantMessageIsCompleteWithApprovalResponses(state),
    onToolCall: ({ toolCall }) => {
      if (!toolCall.providerExecuted) chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: onToolCall(toolCall) });
    },
  });
  useEffect(() => void (Page.chat = chat));
  const button = (name, onClick) => createElement("button", { key: name, onClick }, name);
  const part = (part, index) => {
    if (part.type === "text") return createElement("span", { key: index, className: "text" }, part.text);
    if (part.type === "file") return createElement("a", { key: index, href: part.url, type: part.mediaType }, "file");
    if (part.type !== "dynamic-tool") return null;
    const decide = (approved) => () => chat.addToolApprovalResponse({ id: part.approval.id, approved });
    return createElement("div", { key: index, role: "status" }, `${part.toolName}: ${part.state}`,
      part.state === "approval-requested" && [button("Approve", decide(true)), button("Decline", decide(false))]);
  };
  return createElement("main", null,
    chat.messages.map((message) => createElement("article", { key: message.id, "aria-label": message.role }, message.parts.map(part))),
    createElement("p", { "data-testid": "state" }, chat.status),
    chat.error && createElement("p", { role: "alert" }, chat.error.message),
    button("Stop", () => chat.stop()),
    createElement("form", {
      onSubmit: (event) => { event.preventDefault(); chat.sendMessage({ text: event.currentTarget.elements.namedItem("text").value, files }); },
    }, createElement("textarea", { name: "text", "aria-label": "Message" }), createElement("button", { type: "submit" }, "Send")));
}

function show(t, props = {}) {
  const own = { id: randomUUID(), ...props };
  render(createElement(Page, own));
  t.after(cleanup);
  return own.id;
}

/** Sends a message as a user does. */
function say(text) {
  fireEvent.input(screen.getByLabelText("Message"), { target: { value: text } });
  return act(async () => fireEvent.click(screen.getByText("Send")));
}

const has = (text) => waitFor(() => screen.getAllByText(text), patience);
const ready = () => waitFor(() => assert.equal(screen.getByTestId("state").textContent, "ready"), patience);
const replies = () => screen.getAllByLabelText("assistant").map((own) => own.textContent);

test("text, and a tool of the server", async (t) => {
  show(t);
  await say("/say Hello");
  await ready();
  await say('/tool echo {"text": "a"}\n/then /say Done');
  await has("echo: output-available");
  await has("Done");
  await ready();
  assert.equal(replies()[0], "Hello");
  assert.equal(replies().length, 2);
});

test("an approval and a refusal, which continue the message", async (t) => {
  const id = show(t);
  await say("/say hi");
  await ready();
  await native(`/v1/sessions/${id}`, { method: "PATCH", body: JSON.stringify({ permissions: { tools: { echo: "ask" } } }) });
  for (const [button, state] of [["Approve", "output-available"], ["Decline", "output-denied"]]) {
    await say(`/tool echo {"text": "a"}\n/then /say After ${button}`);
    await has(button);
    await act(async () => fireEvent.click(screen.getByText(button)));
    await has(`echo: ${state}`);
    await has(`After ${button}`);
    await ready();
  }
  assert.equal(replies().length, 3);
});

test("a tool of the page", async (t) => {
  const clientTools = [{
    name: "weather", description: "Returns the weather.",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  }];
  show(t, { body: { clientTools }, onToolCall: ({ input }) => `sunny in ${input.city}` });
  await say('/tool weather {"city": "Rome"}');
  await has(/sunny in Rome/);
  await ready();
  assert.equal(replies().length, 1);
});

test("stopping closes the connection only, and a page that returns has the rest", async (t) => {
  const id = show(t);
  await say("/slow 20 100");
  await waitFor(() => assert.ok(replies()[0].length > 20), patience);
  await act(async () => fireEvent.click(screen.getByText("Stop")));
  await ready();
  cleanup();
  show(t, { id, resume: true });
  await waitFor(() => assert.equal(replies()[0].trim().split(/\s+/).length, 100), patience);
  await ready();
});

test("errors", async (t) => {
  show(t);
  await say("/fail auth");
  await waitFor(() => screen.getByRole("alert"), patience);
  cleanup();
  show(t, { credential: "wrong" });
  await say("/say hi");
  await waitFor(() => assert.match(screen.getByRole("alert").textContent, /key/i), patience);
  cleanup();
  show(t, { body: { agent: "missing" } });
  await say("/say hi");
  await waitFor(() => assert.match(screen.getByRole("alert").textContent, /missing/), patience);
});

test("files: of the user, and of tools", async (t) => {
  const files = [{ type: "file", mediaType: "text/plain", filename: "note.txt", url: "data:text/plain;base64,VGVh" }];
  const id = show(t, { files });
  await say('/tool big {"n": 20000}');
  await ready();
  const [asked] = (await (await native(`/v1/sessions/${id}/messages`)).json()).data;
  const [attached] = asked.parts.filter((part) => part.type === "file");
  assert.equal(await (await native(`/v1/sessions/${id}/artifacts/${attached.ref}`)).text(), "Tea");
  const found = screen.getByLabelText("assistant").querySelector("a");
  assert.match(found.getAttribute("type"), /^text\/plain/);
  const artifact = await native(found.getAttribute("href"));
  assert.deepEqual([artifact.status, (await artifact.text()).length], [200, 20_000]);
});
