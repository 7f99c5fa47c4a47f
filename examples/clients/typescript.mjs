// The project's own client: runs a turn, and approves the call that waits.
import { EdgeHarness } from "@edge-harness/client";

const { URL: url = "http://localhost:8787", KEY: key } = process.env;
const client = new EdgeHarness({ url, key });
const session = await client.createSession({ permissions: { tools: { current_time: "ask" } } });
const turn = session.send("/tool current_time {}");
let pending;
do {
  pending = [];
  for await (const event of turn) {
    if (event.type === "message.delta") process.stdout.write(event.delta);
    if (event.type === "turn.waiting") pending = event.pending;
  }
  for (const call of pending) {
    console.log(`Approving ${call.name}.`);
    await session.approve(call.call_id, "approve", { args_hash: call.args_hash });
  }
} while (pending.length > 0);
console.log((await turn.result()).error?.message ?? "");
