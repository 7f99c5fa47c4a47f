import { backOff } from "./backoff.ts";
import { EdgeHarnessError } from "./error.ts";
import { segment, type Transport } from "./transport.ts";
import { eventId, type Event, type MessageOptions, type NewPart, type Problem, type Receipt, type Scope, type SessionData } from "./types.ts";

/** Time between two pings. */
const PING_MS = 20_000;
/** Silence after which a connection counts as lost. */
const SILENCE_MS = 45_000;

type Frame = Event | { type: "accepted"; answer: Receipt } | { type: "error"; problem: Problem };

interface Command {
  frame: string;
  isSent: boolean;
  resolve(receipt: Receipt): void;
  reject(error: unknown): void;
}

/**
 * A WebSocket of one session that is opened again when it is lost. A loop over it yields each event once; it ends when
 * the socket is closed, and throws when it cannot be opened again.
 */
export class Socket implements AsyncIterable<Event> {
  readonly #transport: Transport;
  readonly #session: string;
  readonly #scopes: Scope[];
  readonly #stop = new AbortController();
  readonly #events: Event[] = [];
  readonly #commands: Command[] = [];
  #socket: WebSocket | undefined;
  #last: string | undefined;
  #failure: unknown;
  #wake: () => void = () => {};

  constructor(transport: Transport, session: string, options: { after?: string; scopes?: Scope[] }) {
    this.#transport = transport;
    this.#session = session;
    this.#scopes = options.scopes ?? ["read", "chat"];
    this.#last = options.after;
    void this.#run();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event> {
    for (;;) {
      const event = this.#events.shift();
      if (event) yield event;
      else if (this.#failure !== undefined) throw this.#failure;
      else if (this.#stop.signal.aborted) return;
      else await new Promise<void>((wake) => (this.#wake = wake));
    }
  }

  /** Sends a message. Rejects with `connection_lost` if it is unknown whether the server has stored it. */
  send(content: string | NewPart[], options: MessageOptions = {}): Promise<Receipt> {
    return this.#command({ type: "message", ...body(content), ...options });
  }

  /** Aborts the turn that runs or waits, clears the queue, and sends a message. */
  steer(content: string | NewPart[], options: MessageOptions = {}): Promise<Receipt> {
    return this.#command({ type: "steer", ...body(content), ...options });
  }

  /** Aborts the turn that runs or waits. */
  abort(): Promise<Receipt> {
    return this.#command({ type: "abort" });
  }

  /** Closes the socket: no event follows, and commands without a response are rejected. */
  close(): void {
    this.#events.length = 0;
    this.#end(undefined);
  }

  #command(command: object): Promise<Receipt> {
    if (this.#stop.signal.aborted) return Promise.reject(this.#failure ?? lost());
    return new Promise((resolve, reject) => {
      this.#commands.push({ frame: JSON.stringify(command), isSent: false, resolve, reject });
      this.#sendNext();
    });
  }

  /** Sends the oldest command. Responses do not say what they respond to, so one command is sent at a time. */
  #sendNext(): void {
    const [next] = this.#commands;
    if (!next || next.isSent || this.#socket?.readyState !== WebSocket.OPEN) return;
    next.isSent = true;
    this.#socket.send(next.frame);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    try {
      for (let failures = 1; ; failures++) {
        // Also reports an unknown or deleted session and an invalid key, which a WebSocket that fails or closes does not.
        const path = `/v1/sessions/${segment(this.#session)}`;
        const { last_seq } = await this.#transport.json<SessionData>("GET", path, { signal });
        this.#last ??= String(last_seq);
        const json = { session: this.#session, user: this.#transport.user, scopes: this.#scopes };
        const { ticket } = await this.#transport.json<{ ticket: string }>("POST", "/v1/tickets", { json, isRepeatable: true, signal });
        const hasOpened = await this.#connect(`${path}/ws?after=${this.#last}&ticket=${segment(ticket)}`);
        if (hasOpened) failures = 1;
        await backOff(failures, undefined, signal);
      }
    } catch (error) {
      this.#end(error);
    }
  }

  /** Opens a connection and reads it until it closes. Returns whether it was open. */
  #connect(path: string): Promise<boolean> {
    return new Promise((resolve) => {
      const { signal } = this.#stop;
      const socket = (this.#socket = new WebSocket(this.#transport.url.replace(/^http/, "ws") + path));
      let hasOpened = false;
      let heard = Date.now();
      const close = () => socket.close();
      const ping = setInterval(() => {
        if (Date.now() - heard > SILENCE_MS) ended();
        else if (socket.readyState === WebSocket.OPEN) socket.send("ping");
      }, PING_MS);
      const ended = () => {
        clearInterval(ping);
        signal.removeEventListener("abort", close);
        socket.onmessage = socket.onclose = socket.onerror = null;
        socket.close();
        if (this.#commands[0]?.isSent) this.#commands.shift()!.reject(lost());
        resolve(hasOpened);
      };
      signal.addEventListener("abort", close);
      socket.onopen = () => {
        hasOpened = true;
        this.#sendNext();
      };
      socket.onmessage = ({ data }) => {
        heard = Date.now();
        if (data !== "pong") this.#receive(JSON.parse(data as string) as Frame);
      };
      socket.onclose = socket.onerror = ended;
    });
  }

  #receive(frame: Frame): void {
    if (frame.type === "accepted" || frame.type === "error") {
      const command = this.#commands.shift();
      if (frame.type === "accepted") command?.resolve(frame.answer);
      else command?.reject(new EdgeHarnessError(frame.problem));
      this.#sendNext();
      return;
    }
    this.#last = eventId(frame) ?? this.#last;
    this.#events.push(frame);
    this.#wake();
  }

  #end(error: unknown): void {
    if (this.#stop.signal.aborted) return;
    this.#failure = error;
    this.#stop.abort();
    for (const command of this.#commands.splice(0)) command.reject(error ?? lost());
    this.#wake();
  }
}

function body(content: string | NewPart[]) {
  return typeof content === "string" ? { content } : { parts: content };
}

function lost(): EdgeHarnessError {
  return new EdgeHarnessError({ code: "connection_lost", detail: "the connection was lost before the server responded" });
}
