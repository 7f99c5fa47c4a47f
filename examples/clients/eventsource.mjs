// The events of a session, with a ticket in place of the key, as in a browser.
import { EventSource } from "eventsource";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const post = async (path, body) => {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const response = await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
};

const { id } = await post("/v1/sessions", {});
const { ticket } = await post("/v1/tickets", { session: id });
const source = new EventSource(`${url}/v1/sessions/${id}/events?ticket=${encodeURIComponent(ticket)}`);
source.addEventListener("message.delta", ({ data }) => process.stdout.write(JSON.parse(data).delta));
for (const type of ["turn.completed", "turn.failed", "turn.canceled"]) {
  source.addEventListener(type, ({ data }) => {
    console.log(JSON.parse(data).error?.message ?? "");
    source.close();
  });
}
await new Promise((resolve) => source.addEventListener("open", resolve));
await post(`/v1/sessions/${id}/messages`, { content: "Hello" });
