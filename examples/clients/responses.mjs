// Responses of the `openai` package: a response, and a stream of another one that follows it.
import OpenAI from "openai";

const { URL: url = "http://localhost:8787", KEY: apiKey } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
const first = await client.responses.create({ model: "default", input: "Hello" });
console.log(first.output_text);
const stream = await client.responses.create({
  model: "default", input: "Go on.", previous_response_id: first.id, stream: true,
});
for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}
console.log();
