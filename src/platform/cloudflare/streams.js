// The ends of byte streams. Entering wasm costs far more than a token, so these wake the other side only when it has
// something to do.

/**
 * How long a model's stream is left to arrive after a delivery, in milliseconds. Text that grows 20 times a second seems to
 * grow steadily. Each delivery, with its timer, its work in wasm and its write to the reader, costs about 0.3 milliseconds of
 * CPU time (measured): with a window of 25 milliseconds, a reply of 50 tokens at intervals of 12 milliseconds would cost
 * about 4 milliseconds more.
 */
const WINDOW = 50;
/** Size of the runtime's largest chunk, in bytes: after such a chunk, more is waiting. */
const FULL_CHUNK = 4096;
/** Number of unsent bytes at which writing pauses. */
const HIGH_WATER = 1 << 20;

/**
 * Reads a stream. Calls `deliver` with each chunk, and `end` with an error or `undefined` once all are delivered. If
 * `deliver` returns false, reading pauses until `resume` is called.
 *
 * Each read enters JavaScript, which costs 20 to 30 microseconds of CPU time (measured), and a chunk of a model is a single
 * token. Once there is something of the reply to show, the runtime itself therefore reads on, until `signal` is aborted, and
 * each read after a window returns all that has arrived.
 */
export class Source {
  constructor(stream, signal, deliver, end) {
    this.stream = stream;
    this.reader = stream.getReader();
    this.signal = signal;
    this.deliver = deliver;
    this.end = end;
    /** Whether the runtime may read on by itself. The reader of a model's stream sets it. */
    this.mayReadAhead = false;
    /** Whether all has arrived, even if it is not delivered yet. */
    this.isOver = false;
    this.read();
  }

  async read() {
    let failure, isAhead = false;
    try {
      while (this.deliver) {
        const { done, value } = await this.reader.read();
        if (done || !this.deliver) break;
        if (!this.deliver(value)) await new Promise((resolve) => (this.resume = resolve));
        if (!this.mayReadAhead || !this.deliver) continue;
        if (!isAhead) this.readAhead();
        isAhead = true;
        if (value.length < FULL_CHUNK) await this.window();
      }
    } catch (error) {
      failure = error ?? new Error("the stream failed");
    }
    this.isOver = failure === undefined;
    this.end?.(failure);
  }

  /** Reads one branch of the stream to its end without JavaScript, so that the other branch keeps what arrives. */
  readAhead() {
    this.reader.releaseLock();
    const [branch, rest] = this.stream.tee();
    this.reader = branch.getReader();
    // The pipe passes on each chunk: without it, `arrayBuffer` would let several kilobytes arrive first.
    const { readable, writable } = new IdentityTransformStream();
    rest.pipeTo(writable, { signal: this.signal }).catch(() => {});
    const drained = new Response(readable).arrayBuffer();
    // The reader gets the error, too.
    drained.then(() => (this.isOver = true), () => {}).then(() => this.wake());
  }

  /** Resolves when the window has ended, or all has arrived. */
  window() {
    if (this.isOver) return;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, WINDOW);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  resume() {}

  wake() {}

  /** Stops reading. Nothing is called any more. The signal must then be aborted, if there is one. */
  release() {
    this.deliver = null;
    this.end = null;
    this.resume();
    this.wake();
    // The other branch ends with the signal.
    if (this.signal && !this.isOver) this.reader.cancel().catch(() => {});
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
