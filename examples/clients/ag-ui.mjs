// The client of AG-UI: runs the agent, and prints the text of its messages.
import { HttpAgent } from "@ag-ui/client";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const agent = new HttpAgent({
  url: `${url}/ag-ui`, threadId: crypto.randomUUID(), headers: { authorization: `Bearer ${key}` },
});
agent.addMessage({ id: crypto.randomUUID(), role: "user", content: "Hello" });
await agent.runAgent({}, {
  onTextMessageContentEvent: ({ event }) => void process.stdout.write(event.delta),
  onRunErrorEvent: ({ event }) => { throw new Error(event.message); },
});
console.log();
