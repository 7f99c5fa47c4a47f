// The AI SDK over a WebSocket, which carries several chats: asks in two of them at once.
import { readUIMessageStream, WebSocketChatTransport } from "ai";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const transport = new WebSocketChatTransport({
  url: `${url}/api/chat`,
  headers: { authorization: `Bearer ${key}` },
});

/** Sends a message in a new chat, and returns the reply. */
async function ask(text) {
  const message = { id: crypto.randomUUID(), role: "user", parts: [{ type: "text", text }] };
  const stream = await transport.sendMessages({
    chatId: crypto.randomUUID(), messages: [message], trigger: "submit-message",
  });
  let reply = "";
  for await (const { parts } of readUIMessageStream({ stream, terminateOnError: true })) {
    reply = parts.filter((part) => part.type === "text").map((part) => part.text).join("");
  }
  return reply;
}

for (const reply of await Promise.all(["Hello", "Good evening"].map(ask))) console.log(reply);
transport.close();
