// The Worker with meters: `GET /meter` responds with the counts since the last such request, and the size of wasm's
// memory.
import { memoryBytes, meterBindings, meterStorage, take } from "./counts.js";
import Worker, { SessionObject as Session, TenantObject as Ledger } from "./index.js";

export default class extends Worker {
  fetch(request) {
    meterBindings(this.env);
    return new URL(request.url).pathname === "/meter" ? Response.json({ counts: take(), wasm: memoryBytes() }) : super.fetch(request);
  }
}

export class SessionObject extends Session {
  constructor(state, env) {
    meterStorage(state.storage);
    super(state, env);
  }
}

export class TenantObject extends Ledger {
  constructor(state, env) {
    meterStorage(state.storage);
    super(state, env);
  }
}
