// The AI SDK without a framework: sends a message, and reads the reply as it grows.
import { DefaultChatTransport, readUIMessageStream } from "ai";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const transport = new DefaultChatTransport({
  api: `${url}/api/chat`,
  headers: { authorization: `Bearer ${key}` },
});
const message = { id: crypto.randomUUID(), role: "user", parts: [{ type: "text", text: "Hello" }] };
const stream = await transport.sendMessages({
  chatId: crypto.randomUUID(), messages: [message], trigger: "submit-message",
});
let printed = "";
for await (const { parts } of readUIMessageStream({ stream, terminateOnError: true })) {
  const text = parts.filter((part) => part.type === "text").map((part) => part.text).join("");
  process.stdout.write(text.slice(printed.length));
  printed = text;
}
console.log();
