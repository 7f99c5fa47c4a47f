import { follow, type FollowOptions } from "./follow.ts";
import { Socket } from "./socket.ts";
import { newKey, segment, type Transport } from "./transport.ts";
import { Turn } from "./turn.ts";
import type {
  Decision, Event, FileRef, Message, MessageOptions, NewPart, Page, Receipt, Schemas, Scope, SessionData, SessionPatch,
  TurnData, View,
} from "./types.ts";

/** How a message is sent. */
export interface SendOptions extends MessageOptions {
  /** Ends the stream; the turn continues. */
  signal?: AbortSignal;
  /** The same key sends the same message once, however often you send it. Random unless you set it. */
  idempotencyKey?: string;
}

/** What may go with a decision. */
export interface DecisionOptions {
  reason?: string;
  /** Replaces the arguments of the call. */
  args?: unknown;
  /** The hash of the arguments that you saw; a call with other arguments is not decided. */
  args_hash?: string;
}

/** One session. Creating this object sends nothing; a session that does not exist is created by its first message. */
export class Session {
  readonly id: string;
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, id: string) {
    this.id = id;
    this.#transport = transport;
    this.#path = `/v1/sessions/${segment(id)}`;
  }

  get(): Promise<SessionData> {
    return this.#transport.json("GET", this.#path);
  }

  /** Returns what a user interface shows; follow the session after its `cursor`. */
  view(): Promise<View> {
    return this.#transport.json("GET", `${this.#path}/view`);
  }

  update(patch: SessionPatch): Promise<SessionData> {
    return this.#transport.json("PATCH", this.#path, { json: patch });
  }

  /** Erases the session. */
  async delete(): Promise<void> {
    await this.#transport.request("DELETE", this.#path);
  }

  /** Creates a session that starts as a copy of this one, up to a message. */
  async fork(at?: string): Promise<Session> {
    const json = at === undefined ? {} : { at_message: at };
    const { id } = await this.#transport.json<SessionData>("POST", `${this.#path}/fork`, { json, idempotencyKey: newKey() });
    return new Session(this.#transport, id);
  }

  /** Yields the conversation, oldest message first. */
  messages(): AsyncGenerator<Message> {
    return pages((cursor) => this.#transport.json<Page<Message>>("GET", `${this.#path}/messages`, { query: { cursor, limit: 200 } }));
  }

  /** Sends a message, and streams its turn. */
  send(content: string | NewPart[], options: SendOptions = {}): Turn {
    return this.#start("messages", content, options);
  }

  /** Aborts the turn that runs or waits, clears the queue, sends a message, and streams its turn. */
  steer(content: string | NewPart[], options: SendOptions = {}): Turn {
    return this.#start("steer", content, options);
  }

  /** Sends a message, and returns as soon as the server has stored it. */
  post(content: string | NewPart[], options: SendOptions = {}): Promise<Receipt> {
    const { signal, idempotencyKey = newKey(), ...more } = options;
    return this.#receipt("messages", { ...this.#message(content), ...more }, { signal, idempotencyKey });
  }

  /** Streams a turn that was started elsewhere, after an event id or from its start. */
  turn(id: string, after?: string, signal?: AbortSignal): Turn {
    return new Turn(this.#transport, this.id, { turn: id, after }, signal);
  }

  /** Returns a turn as it is now. */
  getTurn(id: string): Promise<TurnData> {
    return this.#transport.json("GET", `${this.#path}/turns/${segment(id)}`);
  }

  /** Yields the session's events, each once, across as many connections as it takes. */
  async *follow(options: FollowOptions = {}): AsyncGenerator<Event> {
    for await (const { event } of follow(this.#transport, this.id, options)) yield event;
  }

  /** Opens a WebSocket: the session's events, and commands. Without `after`, it starts with the next event. */
  socket(options: { after?: string; scopes?: Scope[] } = {}): Socket {
    return new Socket(this.#transport, this.id, options);
  }

  /** Decides on a call that waits for permission. */
  approve(callId: string, decision: Decision = "approve", options: DecisionOptions = {}): Promise<Receipt> {
    return this.#receipt(`approvals/${segment(callId)}`, { decision, ...options }, { isRepeatable: true });
  }

  /** Declines a call; the model reads the reason. */
  decline(callId: string, reason?: string): Promise<Receipt> {
    return this.approve(callId, "decline", { reason });
  }

  /** Answers a call that waits for an answer: a question, a plan, or a tool that the client runs. */
  answer(callId: string, answer: unknown, options: { args_hash?: string; runner?: string } = {}): Promise<Receipt> {
    return this.#receipt(`answers/${segment(callId)}`, { answer, ...options }, { isRepeatable: true });
  }

  /** Says why a tool that the client runs has no result. */
  fail(callId: string, error: string): Promise<Receipt> {
    return this.#receipt(`answers/${segment(callId)}`, { error }, { isRepeatable: true });
  }

  /** Aborts the turn that runs or waits. `aborted` is `false` if there was none. */
  abort(): Promise<Schemas["Aborted"]> {
    return this.#transport.json("POST", `${this.#path}/abort`, { isRepeatable: true });
  }

  /** Removes a message from the queue, by the id of its turn. */
  async dequeue(turn: string): Promise<void> {
    await this.#transport.request("DELETE", `${this.#path}/queue/${segment(turn)}`);
  }

  /** Compacts the conversation now. */
  async compact(): Promise<void> {
    await this.#transport.request("POST", `${this.#path}/compact`);
  }

  /** Uploads a file; its `ref` names it in a part of a message. The session must exist. */
  attach(content: Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | string, options: { name?: string; type?: string } = {}): Promise<FileRef> {
    const named = content instanceof Blob ? content : undefined;
    const type = options.type ?? (named?.type || (typeof content === "string" ? "text/plain" : "application/octet-stream"));
    const name = options.name ?? (named as File | undefined)?.name;
    return this.#transport.json("POST", `${this.#path}/attachments`, {
      query: { name }, body: content, headers: { "content-type": type }, idempotencyKey: newKey(),
    });
  }

  /** Returns an artifact or attachment as a response: read it as text, as a blob or as a stream. */
  artifact(ref: string, options: { range?: string; signal?: AbortSignal } = {}): Promise<Response> {
    const headers: Record<string, string> = options.range === undefined ? {} : { range: options.range };
    return this.#transport.request("GET", `${this.#path}/artifacts/${segment(ref)}`, { headers, signal: options.signal });
  }

  #message(content: string | NewPart[]) {
    const user = this.#transport.user;
    return typeof content === "string" ? { content, user } : { parts: content, user };
  }

  #start(route: "messages" | "steer", content: string | NewPart[], options: SendOptions): Turn {
    const { signal, idempotencyKey = newKey(), ...more } = options;
    const body = { ...this.#message(content), ...more };
    return new Turn(this.#transport, this.id, { route, body, idempotencyKey }, signal);
  }

  #receipt(route: string, json: unknown, options: { signal?: AbortSignal; idempotencyKey?: string; isRepeatable?: boolean }): Promise<Receipt> {
    return this.#transport.json("POST", `${this.#path}/${route}`, { json, headers: { prefer: "respond-async" }, ...options });
  }
}

/** Yields the entries of all pages of a list. */
export async function* pages<T>(read: (cursor: string | undefined) => Promise<Page<T>>): AsyncGenerator<T> {
  let cursor: string | undefined;
  do {
    const page: Page<T> = await read(cursor);
    yield* page.data;
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
}
