// Chat completions of the `openai` package: streams a reply in a session.
import OpenAI from "openai";

const { URL: url = "http://localhost:8787", KEY: apiKey } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
const stream = await client.chat.completions.create(
  { model: "default", messages: [{ role: "user", content: "Hello" }], stream: true },
  { headers: { "x-session-id": "chat-completions" } },
);
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
console.log();
