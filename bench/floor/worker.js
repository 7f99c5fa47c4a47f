// The floor: the least work per turn of a session on Durable Objects. It stores the user's message, forwards
// the model's stream, and stores the assistant's text.
import { DurableObject } from "cloudflare:workers";

export default {
  fetch(request, env) {
    return env.SESSION.getByName(new URL(request.url).pathname).fetch(request);
  },
};

export class FloorObject extends DurableObject {
  constructor(state, env) {
    super(state, env);
    this.sql = state.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, role TEXT, text TEXT)");
  }

  async fetch(request) {
    const { content } = await request.json();
    await this.begin(content);
    const upstream = await fetch(`${this.env.OPENAI_BASE_URL}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(this.modelRequest(content)),
    });
    const decoder = new TextDecoder();
    let events = "";
    // `tee` would delay the stream until the model has finished.
    const keep = new TransformStream({
      transform: (chunk, controller) => {
        events += decoder.decode(chunk, { stream: true });
        controller.enqueue(chunk);
      },
      flush: () => this.end(content, textOf(events)),
    });
    return new Response(upstream.body.pipeThrough(keep), {
      headers: { "content-type": "text/event-stream" },
    });
  }

  begin(content) {
    this.store("user", content);
  }

  modelRequest(content) {
    return { model: "bench", stream: true, messages: [{ role: "user", content }] };
  }

  end(_content, text) {
    this.store("assistant", text);
  }

  store(role, text) {
    this.sql.exec("INSERT INTO messages (role, text) VALUES (?, ?)", role, text);
  }
}

function textOf(events) {
  let text = "";
  for (const line of events.split("\n")) {
    if (line.startsWith("data: {")) text += JSON.parse(line.slice(6)).choices[0]?.delta.content ?? "";
  }
  return text;
}
