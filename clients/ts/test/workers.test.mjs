// The client in a Worker, in workerd, against the real server, which URL and KEY name.
import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "esbuild";
import { Miniflare, convertV4MiniflareOptions } from "miniflare";

const WORKER = `
import { EdgeHarness } from "@edge-harness/client";

export default {
  async fetch(_request, { URL: url, KEY: key }) {
    const session = await new EdgeHarness({ url, key }).createSession();
    const types = new Set();
    for await (const event of session.send("/slow 5 10")) types.add(event.type);
    const socket = session.socket();
    const { turn_id } = await socket.send("/say Done");
    for await (const event of socket) {
      if (event.turn === turn_id && event.type === "turn.completed") {
        socket.close();
        return Response.json({ types: [...types], reply: event.reply.text });
      }
    }
  },
};`;

test("a Worker streams a turn, and uses a WebSocket", async (t) => {
  const { outputFiles: [bundle] } = await build({
    stdin: { contents: WORKER, resolveDir: "." }, bundle: true, format: "esm", target: "es2022", write: false,
  });
  const { URL, KEY } = process.env;
  const worker = new Miniflare(convertV4MiniflareOptions({
    cf: false, modules: true, script: bundle.text, compatibilityDate: "2026-10-15", bindings: { URL, KEY },
  }));
  t.after(() => worker.dispose());
  const result = await (await worker.dispatchFetch("http://localhost/")).json();
  assert.equal(result.reply, "Done");
  assert.deepEqual(result.types, ["turn.started", "message.delta", "message.completed", "usage.updated", "turn.completed"]);
});
