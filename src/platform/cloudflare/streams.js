// The ends of byte streams. Entering wasm costs far more than a token, so these collect what arrives and what has
// to be sent, and wake the other side only when it has something to do.

/** How long received bytes wait for more, in milliseconds. Bytes that arrive alone do not wait. */
const WINDOW = 10;
/** How many times bytes are handed over without a wait: up to the first token, a provider sends a few empty events. */
const PROMPT = 4;
/** Number of unread bytes at which reading or writing pauses. */
const HIGH_WATER = 1 << 20;

/**
 * Reads a stream ahead. Calls `deliver` with the bytes, and `end` with an error or `undefined` once all are delivered. If
 * `deliver` returns false, reading pauses until `resume` is called.
 */
export class Source {
  constructor(stream, deliver, end) {
    this.reader = stream.getReader();
    this.deliver = deliver;
    this.end = end;
    this.chunks = [];
    this.size = 0;
    this.delivered = 0;
    this.deliveredAt = -WINDOW;
    this.timer = null;
    this.paused = null;
    this.read();
  }

  async read() {
    let failure;
    try {
      while (this.deliver) {
        const { done, value } = await this.reader.read();
        if (done || !this.deliver) break;
        this.chunks.push(value);
        this.size += value.length;
        this.announce();
        if (this.paused) {
          await this.paused;
          this.paused = null;
        }
      }
    } catch (error) {
      failure = error ?? new Error("the stream failed");
    }
    this.pass();
    this.end?.(failure);
  }

  /** Delivers what has arrived, at the latest when the window ends. */
  announce() {
    const now = Date.now();
    const rest = this.size > HIGH_WATER ? 0 : this.deliveredAt + WINDOW - now;
    if (rest <= 0) {
      if (++this.delivered >= PROMPT) this.deliveredAt = now;
      this.pass();
    } else if (this.timer === null) {
      this.timer = setTimeout(() => {
        this.timer = null;
        this.deliveredAt = Date.now();
        this.pass();
      }, rest);
    }
  }

  pass() {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (this.size === 0 || !this.deliver) return;
    const bytes = this.chunks.length === 1 ? this.chunks[0] : new Uint8Array(this.size);
    if (this.chunks.length > 1) {
      let at = 0;
      for (const chunk of this.chunks) {
        bytes.set(chunk, at);
        at += chunk.length;
      }
    }
    this.chunks = [];
    this.size = 0;
    if (!this.deliver(bytes)) this.paused = new Promise((resolve) => (this.resume = resolve));
  }

  resume() {}

  /** Stops reading. Nothing is called any more. */
  release() {
    clearTimeout(this.timer);
    this.deliver = null;
    this.end = null;
    this.chunks = [];
    this.size = 0;
    this.resume();
  }
}

/** Writes a stream: `readable` is the body of a response. */
export class Sink {
  constructor() {
    const { readable, writable } = new IdentityTransformStream();
    this.readable = readable;
    this.writer = writable.getWriter();
    this.unread = 0;
    /** Resolves when the bytes so far are sent. */
    this.pending = Promise.resolve();
    this.open = true;
    /** Resolves when the reader has left. */
    this.left = new Promise((resolve) => {
      this.leave = () => {
        this.open = false;
        this.resume?.();
        resolve();
      };
    });
    this.writer.closed.catch(this.leave);
  }

  /** Sends bytes. Returns whether more may be sent at once. */
  write(bytes) {
    this.unread += bytes.length;
    this.pending = this.writer.write(bytes).then(() => {
      this.unread -= bytes.length;
      if (this.unread <= HIGH_WATER) this.resume?.();
    }, this.leave);
    return this.unread <= HIGH_WATER;
  }

  /** Resolves when more may be sent, or the reader has left. */
  drained() {
    if (!this.open || this.unread <= HIGH_WATER) return Promise.resolve();
    return new Promise((resolve) => (this.resume = resolve));
  }

  close() {
    this.writer.close().catch(() => {});
  }

  /** Ends the stream with an error once the bytes so far are sent, so that the connection is closed early. */
  abort(reason) {
    this.pending.then(() => this.writer.abort(new Error(reason))).catch(() => {});
  }
}

/**
 * Replaces `queueMicrotask`, which wasm-bindgen calls for each wake of a task: a call into the runtime's C++, several
 * microseconds each. A promise runs its reaction as a microtask of the engine itself.
 */
export function useEngineMicrotasks() {
  const resolved = Promise.resolve();
  globalThis.queueMicrotask = (work) => void resolved.then(work);
}
